"""The sections [join.left] and [join.right] of a config, and the names that the two may have."""

import re
from typing import ClassVar

from pydantic import Field

from sessionlake.config.lookups import LookupSection
from sessionlake.config.sections import EventSection, Section
from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError
from sessionlake.operators.joins.spec import LEFT, RIGHT

RESERVED = frozenset(
    [
        "op",
        "join_key",
        "join_time",
        "join_date",
        "join_id",
        "left_time",
        "left_position",
        "right_time",
        "right_position",
        "revision",
        "emitted_at",
        "batch_id",
        "commit_id",
        "side",
        "time",
        "position",
        "is_late",
    ]
)
"""Columns of the tables, which no `<name>_<column>` may be called as; in lower case."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class LeftSource(SourceSection):
    """The section [join.left.source]: the source of the left side."""

    AT: ClassVar[str] = "join.left.source"


class RightSource(SourceSection):
    """The section [join.right.source]: the source of the right side."""

    AT: ClassVar[str] = "join.right.source"


class JoinSideSection(Section):
    """One of the two streams."""

    name: str
    """The prefix of its columns' names: `<name>_<column>`, for example `orders_value`."""
    size: str | int | None = None
    """Of sliding joins: how long its messages stay joinable: a duration, a number of messages, or "unbounded"."""
    columns: list[str] = Field(default=[])
    """Its columns that pairs have, besides times and positions."""
    source: SourceSection
    event: EventSection
    lookup: list[LookupSection] = Field(default=[])
    """Tables from which its messages are enriched, in this order."""


class LeftSection(JoinSideSection):
    """The left side."""

    source: LeftSource


class RightSection(JoinSideSection):
    """The right side."""

    source: RightSource


def check_sides(left: LeftSection, right: RightSection) -> None:
    """Refuse keys of their own, tombstones, and names by which columns would clash; ConfigError."""
    if left.name.lower() == right.name.lower():
        raise ConfigError(f"join.right.name: {right.name!r} is the left side's name too; write another one")
    seen: dict[str, str] = {}
    for at, side in {LEFT: left, RIGHT: right}.items():
        if not _NAME.fullmatch(side.name):
            raise ConfigError(
                f"join.{at}.name: {side.name!r} can't begin a column's name; write letters, digits and _, a letter first"
            )
        if side.event.key is not None:
            raise ConfigError(f"join.{at}.event.key: the key of a join is its equal fields; write join.on, remove it")
        if side.source.tombstones:
            raise ConfigError(f"join.{at}.source.tombstones: remove sessions, and a join has none; remove it")
        for column in side.columns:
            name = f"{side.name}_{column}".lower()
            if name in RESERVED or name in seen:
                other = "a column of every join" if name in RESERVED else f"a column of {seen[name]}"
                raise ConfigError(
                    f"join.{at}.columns: {column!r} would be called as {other}, {name!r}; rename the side, or leave it out"
                )
            seen[name] = side.name
