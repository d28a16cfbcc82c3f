"""Other pipelines that a config names: results to read, and tables to look up."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from sessionlake.config.operators import OPERATORS, OperatorEntry, entry_of, named
from sessionlake.config.sections import OperatorSection


@dataclass(frozen=True)
class Upstream:
    """A pipeline whose results are read."""

    name: str
    warehouse: str
    section: OperatorSection
    keeps_replaced: bool = False
    """Whether replaced rows are kept (`pipeline.keep_replaced`)."""
    key_columns: tuple[str, ...] = ()
    """The columns of a key with several columns; empty for a key of one column, or a key that the config leaves out."""

    @property
    def entry(self) -> OperatorEntry:
        """The entry of its operator."""
        return entry_of(self.section)

    @property
    def changelog(self) -> Any:
        """The `warehouse.changelog.Changelog` of its results."""
        return named(self.entry.changelog)

    @property
    def path(self) -> str:
        """The table of the changes of its results."""
        return f"{self.warehouse}/{self.changelog.changes}"

    def is_identified_by(self, columns: Collection[str]) -> bool:
        """Return whether no two rows have the same values in columns."""
        of = self.changelog
        identities = (of.identity, replace(of, key_columns=self.key_columns).named_identity)
        return any({*identity} <= {*columns} for identity in identities)


@dataclass(frozen=True)
class LookedUpTable:
    """The pipeline that a lookup reads."""

    warehouse: str
    key: tuple[str, ...]
    """The key's columns."""
    operator: str
    """The operator's name in OPERATORS."""

    @property
    def entry(self) -> OperatorEntry:
        """The entry of its operator."""
        return OPERATORS[self.operator]

    def called(self, column: str) -> str:
        """Return a column's name in the rows: a key of one column has the operator's name for keys."""
        return self.entry.rows.key if self.key == (column,) else column
