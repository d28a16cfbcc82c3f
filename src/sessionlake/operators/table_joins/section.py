"""The sections [table_join], [table_join.left] and [table_join.right] of a config."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from sessionlake.config.lookups import LookupSection
from sessionlake.config.source import SourceSection
from sessionlake.operators.shared.never_closes import NeverCloses
from sessionlake.operators.shared.sides.names import LEFT, RIGHT
from sessionlake.operators.shared.sides.section import SideSection, check_sides, pairs_on

AT = "table_join"
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


class TableJoinSection(NeverCloses):
    """Pairs of rows of two inputs with equal fields, which follow both inputs."""

    BESIDE: ClassVar[tuple[str, ...]] = ()
    RESERVED: ClassVar[frozenset[str]] = RESERVED
    SIDES: ClassVar[tuple[str, ...]] = (LEFT, RIGHT)
    KEYED: ClassVar[bool] = False
    NOT_UNIQUE: ClassVar[str | None] = "is not for [table_join]; take duplicates out in a [table] in front"

    left: LeftSection
    right: RightSection
    on: list[str] = Field(min_length=1)
    """Equal fields, as in "id", or "customer_id = id" if left and right call them differently."""
    type: Literal["inner", "left", "right", "full"] = "inner"
    """The sides whose rows make a result without a partner, too, for example `left`."""

    @property
    def sides(self) -> dict[str, SideSection]:
        """The two sides, by their names in states and inputs."""
        return {LEFT: self.left, RIGHT: self.right}

    def reading(self, sources: Mapping[str, SourceSection], lookups: Mapping[str, Sequence[LookupSection]]) -> Self:
        """Return the section with other sources and lookups."""
        given = {name: {"source": sources[name], "lookup": list(lookups[name])} for name in self.sides}
        return self.model_copy(update={name: side.model_copy(update=given[name]) for name, side in self.sides.items()})

    @property
    def own_columns(self) -> list[str]:
        """The columns of both sides, as results have them."""
        return [f"{side.name}_{column}" for side in self.sides.values() for column in side.columns]

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """The equal fields of each side."""
        pairs = pairs_on(f"{AT}.on", self.on)
        return {name: tuple(pair[i] for pair in pairs) for i, name in enumerate(self.sides)}

    @property
    def outer(self) -> tuple[str, ...]:
        """The sides whose rows make a result without a partner."""
        return {"inner": (), "full": (LEFT, RIGHT)}.get(self.type, (self.type,))

    @property
    def stores_are_rows(self) -> bool:
        """No: stores hold the rows of both sides."""
        return False

    @property
    def sums_events(self) -> bool:
        """A row is in any number of pairs."""
        return False

    def in_words(self) -> str:
        """Return which rows are paired."""
        alone = {"left": self.left.name, "right": self.right.name, "full": "either side"}.get(self.type)
        more = f"; a row of {alone} without a partner is there alone" if alone else ""
        return (
            f"the rows of {self.left.name} and {self.right.name} with equal {', '.join(self.on)}, as they are now{more}"
        )

    def check(self) -> None:
        """Refuse keys of other kinds, and names that clash."""
        _ = self.keys
        check_sides(AT, RESERVED, self.left, self.right)
        self.check_retention(AT)

    def reads(self, side: str) -> Mapping[str, Sequence[str] | str | None]:
        """Return the equal fields and the columns of results."""
        return {f"{AT}.on": self.keys[side], f"{AT}.{side}.columns": self.sides[side].columns}

    def bound_settings(self) -> dict[str, Any]:
        """Return the equal fields, the type, and each side's name and columns."""
        sides = {f"{AT}.{at}": {"name": side.name, "columns": list(side.columns)} for at, side in self.sides.items()}
        return {f"{AT}.on": [list(pair) for pair in pairs_on(f"{AT}.on", self.on)], f"{AT}.type": self.type, **sides}
