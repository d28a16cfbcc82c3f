"""The sections [join.left] and [join.right] of a config."""

from typing import ClassVar

from sessionlake.config.source import SourceSection
from sessionlake.operators.shared.sides.section import SideSection

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


class LeftSource(SourceSection):
    """The section [join.left.source]: the source of the left side."""

    AT: ClassVar[str] = "join.left.source"


class RightSource(SourceSection):
    """The section [join.right.source]: the source of the right side."""

    AT: ClassVar[str] = "join.right.source"


class JoinSideSection(SideSection):
    """One of the two streams; pairs have its `columns` besides times and positions."""

    size: str | int | None = None
    """Of sliding joins: how long its messages stay joinable: a duration, a number of messages, or "unbounded"."""


class LeftSection(JoinSideSection):
    """The left side."""

    source: LeftSource


class RightSection(JoinSideSection):
    """The right side."""

    source: RightSource
