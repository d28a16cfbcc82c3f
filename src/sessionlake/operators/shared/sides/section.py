"""The sections of the two inputs of an operator, for example [join.left] and [join.right], and the names that the two may have."""

import re
from collections.abc import Collection, Sequence

from pydantic import Field

from sessionlake.config.lookups import LookupSection
from sessionlake.config.sections import EventSection, Section, equal_columns
from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError
from sessionlake.operators.shared.sides.names import LEFT, RIGHT

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class SideSection(Section):
    """One of the two inputs."""

    name: str
    """The prefix of its columns' names: `<name>_<column>`, for example `orders_value`."""
    columns: list[str] = Field(default=[])
    """Its columns that results have."""
    source: SourceSection
    event: EventSection
    lookup: list[LookupSection] = Field(default=[])
    """Tables from which its events are enriched, in this order."""


def pairs_on(at: str, on: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the equal fields of left and right that the key `at` names; ConfigError for a text that names none.

    >>> pairs_on("join.on", ["shop", "order_id = id"])
    (('shop', 'shop'), ('order_id', 'id'))
    """
    found = []
    for text in on:
        pair = equal_columns(text)
        if pair is None:
            raise ConfigError(f"{at}: {text!r} names no fields; write 'id', or 'order_id = id'")
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
            name = f"{side.name}_{column}".lower()
            if name in reserved or name in seen:
                other = "a column of every join" if name in reserved else f"a column of {seen[name]}"
                raise ConfigError(
                    f"{at}.{place}.columns: {column!r} would be called as {other}, {name!r}; rename the side, or leave it out"
                )
            seen[name] = side.name
