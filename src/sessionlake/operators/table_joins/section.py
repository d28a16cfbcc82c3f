"""The sections [table_join], [table_join.left] and [table_join.right] of a config."""

from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from sessionlake.config.sections import Facts
from sessionlake.config.source import SourceSection
from sessionlake.operators.shared.never_closes import NeverCloses
from sessionlake.operators.shared.sides.section import SidedSection, SideSection

RESERVED = frozenset(
    (
        *("op", "joined_row_key", "joined_row_part", "changed_at", "left_position", "right_position"),
        *("revision", "batch_id", "commit_id", "side", "position"),
    )
)
"""Columns of the tables, which no `<name>_<column>` may be called as; in lower case."""


class LeftSource(SourceSection):
    """The section [table_join.left.source]: the source of the left side."""

    AT: ClassVar[str] = "table_join.left.source"


class RightSource(SourceSection):
    """The section [table_join.right.source]: the source of the right side."""

    AT: ClassVar[str] = "table_join.right.source"


class LeftSection(SideSection):
    """The left side."""

    source: LeftSource


class RightSection(SideSection):
    """The right side."""

    source: RightSource


class TableJoinSection(NeverCloses, SidedSection):
    """Pairs of rows of two inputs with equal fields, which follow both inputs."""

    AT: ClassVar[str] = "table_join"
    BESIDE: ClassVar[tuple[str, ...]] = ()
    RESERVED: ClassVar[frozenset[str]] = RESERVED
    NOT_UNIQUE: ClassVar[str | None] = "is not for [table_join]; take duplicates out in a [table] in front"

    left: LeftSection
    right: RightSection
    on: list[str] = Field(min_length=1)
    """Equal fields, as in "id", or "customer_id = id" if left and right call them differently."""

    @property
    def facts(self) -> Facts:
        """A row is in any number of pairs, and stores hold the rows of both sides."""
        return replace(super().facts, sums_events=False, stores_are_rows=False)

    def in_words(self) -> str:
        """Return which rows are paired."""
        alone = {"left": self.left.name, "right": self.right.name, "full": "either side"}.get(self.type)
        more = f"; a row of {alone} without a partner is there alone" if alone else ""
        return (
            f"the rows of {self.left.name} and {self.right.name} with equal {', '.join(self.on)}, as they are now{more}"
        )

    def check(self) -> None:
        """Refuse keys of other kinds, and names that clash."""
        self.check_sides()
        self.check_retention(self.AT)

    def bound_settings(self) -> dict[str, Any]:
        """Return the equal fields, the type, and each side's name and columns."""
        sides = {
            f"{self.AT}.{at}": {"name": side.name, "columns": list(side.columns)} for at, side in self.sides.items()
        }
        return {f"{self.AT}.on": [list(pair) for pair in self.pairs_on], f"{self.AT}.type": self.type, **sides}
