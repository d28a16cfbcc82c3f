"""The sections of the two inputs of an operator, for example [join.left] and [join.right], and the names that the two may have."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field

from sessionlake.column_names import title_of, titles_of
from sessionlake.config.equal_columns import cast_columns, equal_columns
from sessionlake.config.fields import ResultColumns, Section
from sessionlake.config.lookups import LookupSection
from sessionlake.config.sections import EventSection, OperatorSection
from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError
from sessionlake.operators.shared.sides.names import LEFT, RIGHT, SIDES

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class SideSection(Section):
    """One of the two inputs."""

    name: str
    """The prefix of its columns' names: `<name>_<column>`, for example `orders_value`."""
    columns: ResultColumns = Field(default=[])
    """Its columns that results have."""
    source: SourceSection
    event: EventSection
    lookup: list[LookupSection] = Field(default=[])
    """Tables from which its events are enriched, in this order."""


class SidedSection(OperatorSection):
    """The section of an operator with a left and a right input, whose rows are paired by equal fields."""

    AT: ClassVar[str]
    """The section's name."""
    SIDES: ClassVar[tuple[str, ...]] = SIDES
    KEYED: ClassVar[bool] = False

    left: SideSection
    right: SideSection
    on: list[str]
    """Equal fields, as in "id", or "order_id = id" if left and right call them differently."""
    type: Literal["inner", "left", "right", "full"] = "inner"
    """The sides whose rows make a result without a partner, too, for example `left`."""

    @property
    def sides(self) -> Mapping[str, SideSection]:
        """The two sides, by their names in states and inputs."""
        return {LEFT: self.left, RIGHT: self.right}

    def reading(self, sources: Mapping[str, SourceSection], lookups: Mapping[str, Sequence[LookupSection]]) -> Self:
        """Return the section with other sources and lookups."""
        given = {name: {"source": sources[name], "lookup": list(lookups[name])} for name in self.sides}
        return self.model_copy(update={name: side.model_copy(update=given[name]) for name, side in self.sides.items()})

    @property
    def own_columns(self) -> list[str]:
        """The columns of both sides, as results have them."""
        return [f"{side.name}_{title}" for side in self.sides.values() for title in titles_of(side.columns)]

    @property
    def pairs_on(self) -> tuple[tuple[str, str], ...]:
        """The equal fields of left and right; ConfigError for a text that names none."""
        return pairs_on(f"{self.AT}.on", self.on)

    @property
    def casts_on(self) -> tuple[tuple[bool, bool], ...]:
        """For each of `pairs_on` which of the two fields are compared as texts."""
        return tuple(map(cast_columns, self.on))

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """The equal fields of each side."""
        return {name: tuple(pair[i] for pair in self.pairs_on) for i, name in enumerate(self.sides)}

    @property
    def outer(self) -> tuple[str, ...]:
        """The sides whose rows make a result without a partner."""
        return {"inner": (), "full": SIDES}.get(self.type, (self.type,))

    def reads(self, side: str) -> Mapping[str, Sequence[str] | str | None]:
        """Return a side's equal fields, and its columns of results."""
        return {f"{self.AT}.on": self.keys[side], f"{self.AT}.{side}.columns": self.sides[side].columns}

    def check_sides(self) -> None:
        """Refuse equal fields that are none, keys of other kinds, and names that clash; ConfigError."""
        _ = self.pairs_on
        check_sides(self.AT, self.RESERVED, self.left, self.right)


def pairs_on(at: str, on: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the equal fields of left and right that the key `at` names; ConfigError for a text that names none.

    >>> pairs_on("join.on", ["shop", "order_id = id"])
    (('shop', 'shop'), ('order_id', 'id'))
    """
    found = []
    for text in on:
        pair = equal_columns(text)
        if pair is None:
            raise ConfigError(
                f"{at}: {text!r} names no fields; write 'id', or 'order_id = id', and backquotes around a name with ="
            )
        found.append(pair)
    return tuple(found)


def check_sides(at: str, reserved: Collection[str], left: SideSection, right: SideSection) -> None:
    """Refuse keys of their own, tombstones, and names by which columns would clash; ConfigError. `at` is the operator's section."""
    if left.name.lower() == right.name.lower():
        raise ConfigError(f"{at}.right.name: {right.name!r} is the left side's name too; write another one")
    seen: dict[str, str] = {}
    for place, side in {LEFT: left, RIGHT: right}.items():
        if not _NAME.fullmatch(side.name):
            raise ConfigError(
                f"{at}.{place}.name: {side.name!r} can't begin a column's name; write letters, digits and _, a letter first"
            )
        if side.event.key is not None:
            raise ConfigError(
                f"{at}.{place}.event.key: the key of a join is its equal fields; write {at}.on, remove it"
            )
        if side.source.tombstones:
            raise ConfigError(f"{at}.{place}.source.tombstones: remove sessions, and a join has none; remove it")
        for column in side.columns:
            name = f"{side.name}_{title_of(column)}".lower()
            if name in reserved or name in seen:
                other = "a column of every join" if name in reserved else f"a column of {seen[name]}"
                raise ConfigError(
                    f"{at}.{place}.columns: {column!r} would be called as {other}, {name!r}; rename the side, or leave it out"
                )
            seen[name] = side.name
