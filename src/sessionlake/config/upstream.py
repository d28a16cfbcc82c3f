"""Other pipelines that a config names: those whose results it reads, and those whose tables it looks up."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from sessionlake.config.operators import OPERATORS, OperatorEntry, entry_of, named
from sessionlake.config.sections import OperatorSection


@dataclass(frozen=True)
class Upstream:
    """A pipeline whose results another one reads."""

    name: str
    warehouse: str
    section: OperatorSection
    keeps_replaced: bool = False
    """Whether it keeps the rows that it replaces (`pipeline.keep_replaced`)."""
    key_columns: tuple[str, ...] = ()
    """The columns that its key is made of; none of a key of one column, or one that its config leaves out."""

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
        """Say whether no two of its rows have the same values in columns."""
        of = self.changelog
        identities = (of.identity, replace(of, key_columns=self.key_columns).named_identity)
        return any({*identity} <= {*columns} for identity in identities)


@dataclass(frozen=True)
class LookedUpTable:
    """The pipeline that a lookup reads."""

    warehouse: str
    key: tuple[str, ...]
    """The columns that make its key."""
    operator: str
    """The name of its operator's entry."""

    @property
    def entry(self) -> OperatorEntry:
        """The entry of its operator."""
        return OPERATORS[self.operator]

    def called(self, column: str) -> str:
        """Return the name that a column has in its rows: a key of one column is called as the operator calls keys."""
        return self.entry.rows.key if self.key == (column,) else column
