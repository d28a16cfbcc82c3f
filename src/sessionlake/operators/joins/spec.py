"""The specification of a join that workers get: its sides, its lengths, and the schemas of its tables.

A message has a place on the join's axis (`axis.py`): its time in microseconds, or its number in its source partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa

from sessionlake.column_names import title_of
from sessionlake.columnar.arrays import Ints
from sessionlake.errors import ConfigError
from sessionlake.operators.joins.table import JOINS, KEY
from sessionlake.operators.shared.sides.columns import check_types, column_fields
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.operators.shared.sides.spec import SidedSpec
from sessionlake.operators.shared.windowing.policies import CLOSE, OFF, Policies
from sessionlake.operators.shared.windowing.retained_counts import RetainedCounts
from sessionlake.store.segmented import segment_interval
from sessionlake.stream.ingest import EventSpec
from sessionlake.warehouse import schemas
from sessionlake.warehouse.dialects import DAY_US
from sessionlake.warehouse.row_table import RowTable
from sessionlake.warehouse.schemas import TIME

TIME_AXIS, COUNT_AXIS = "time", "count"
UNBOUNDED = "unbounded"
"""The size of a side whose messages stay joinable for as long as the retention allows."""
SLIDING, TUMBLING, HOPPING, SESSION = KINDS = ("sliding", "tumbling", "hopping", "session")
MESSAGES = "messages"
"""Kind of the rows of join_messages, which shards return with the pairs."""
SIDE, POSITION = "side", "position"
"""Columns that the tables of late events and of dead letters have in a join (`position`: of late events alone)."""
NUMBER_BITS = 40
"""A position is a source partition's index times 2^40 plus the message's number in the partition, from 1."""
_CENTURY_US = 36_525 * DAY_US


@dataclass(frozen=True)
class Side:
    """One of the two streams."""

    name: str
    """As the tables' columns are called: `<name>_<column>`."""
    size: int | None
    """How long a message stays joinable (sliding joins): microseconds, inclusive, or messages; None for as retention allows."""
    columns: tuple[str, ...]
    """The columns that pairs have."""
    events: EventSpec
    """Its decoder's columns have the side's equal fields as keys (none: no key), and as inputs all that `columns` are computed of."""

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types of `columns`."""
        return {title_of(name): self.events.types[name] for name in self.columns}


def grid_width(size: int, advance: int) -> int:
    """Return the length of the longest stretch of windows that share a place; windows begin every `advance`, <= size.

    >>> grid_width(size=10, advance=4)  # [0, 10), [4, 14), [8, 18)
    18
    """
    return size + (size - 1) // advance * advance


def least_retention(kind: str, sizes: tuple[int | None, int | None], size: int, advance: int, gap: int) -> int:
    """Return how long a message must be kept for no partner to be missed, without the grace; an unbounded side counts nothing."""
    if kind == SLIDING:
        return sum(own or 0 for own in sizes)
    return 2 * gap if kind == SESSION else grid_width(size, advance if kind == HOPPING else size)


def default_grace(
    kind: str, sizes: tuple[int | None, int | None], least_us: int, retention_us: int, retention_count: int | None
) -> int:
    """Return the grace of a join by time that writes none: the longest that the retention allows (docs/rules.md, rule 269).

    Zero if the retention decides how far apart partners may lie, which a grace would shorten; and with a retention by number, which
    would keep all messages of the grace. `least_us` is `least_retention`.
    """
    return 0 if retention_count or reaches_back(kind, sizes) else max(0, retention_us - least_us)


def reaches_back(kind: str, sizes: tuple[int | None, int | None]) -> bool:
    """Say whether retention and grace decide how far apart partners may lie: in sessions, and beside an unbounded side."""
    return kind == SESSION or (kind == SLIDING and None in sizes)


def check_full(kind: str, by: str, early: str, full: str | None) -> None:
    """Refuse to hold pairs back until their window is full if they have none that gets full, or are sent before; ConfigError."""
    if full is None:
        if early == OFF:
            raise ConfigError(
                f"emit.early: {OFF!r} sends no pair before its window is full; write emit.full = 'end' or 'close', too, or another policy"
            )
        return
    if kind not in (TUMBLING, HOPPING):
        raise ConfigError(
            f"emit.full: {full!r} is of tumbling and hopping joins, and this one is {kind}, whose pairs have no window with a fixed end; remove it"
        )
    if by != TIME_AXIS:
        raise ConfigError(f"emit.full: {full!r} is of joins by time, and this one is by {by}; remove it")
    if early != OFF:
        raise ConfigError(
            f"emit.early: {early!r} does not go with full = {full!r}, which holds pairs back; write {OFF!r}"
        )


@dataclass(frozen=True)
class JoinSpec(SidedSpec[Side]):
    """A pipeline's join: which messages are partners, how long they are kept, and when pairs are sent."""

    on: tuple[tuple[str, str], ...]
    """Pairs of equal fields, of left and of right; empty if every message is as good as any other in range."""
    by: str = TIME_AXIS
    kind: str = SLIDING
    size: int = 0
    """Of a window, tumbling and hopping: microseconds or messages."""
    advance: int = 0
    """Of hopping windows, <= size."""
    offset: int = 0
    """Of the windows' grid."""
    gap: int = 0
    """Of sessions: neighbors exactly the gap apart are in one."""
    grace_us: int = 0
    """By time: a message whose last possible partner lies before the watermark - grace is late."""
    retention_us: int = 0
    """By time: how long a message is kept."""
    retention_count: int = 0
    """By count: how many of the newest messages of each source partition of a side are kept. By time, 0 for any number: about how
    many accepted messages of both sides together are kept at most, besides those that may still have partners."""
    idle_us: int = 60_000_000
    """A side that has brought nothing for longer does not hold the watermark back."""
    outer: tuple[str, ...] = ()
    """The sides whose messages are sent alone if they have no partner; only by time."""
    unmatched: str = CLOSE
    """When they are sent: once no partner can come, or with their batch."""
    emit: Policies = field(default_factory=lambda: Policies("batch", "end", "batch"))
    """Early off says that `full` holds pairs back; else it says nothing."""

    def __post_init__(self) -> None:
        """Refuse columns of types that stores can't hold; ConfigError."""
        check_types("join", self.both)

    def side(self, name: str) -> Side:
        """Return a side, LEFT or RIGHT."""
        return self.both[name]

    @property
    def by_time(self) -> bool:
        """Whether places are times."""
        return self.by == TIME_AXIS

    @property
    def lists_open(self) -> bool:
        """Whether messages are listed that may still get a partner."""
        return bool(self.outer) and self.unmatched == CLOSE

    @property
    def until_full(self) -> bool:
        """Whether pairs wait until their window is full; only of windows by time."""
        return self.emit.early == OFF

    @property
    def default_grace_us(self) -> int:
        """The grace if none is written; see `default_grace`."""
        if not self.by_time:
            return 0
        sizes = (self.left.size, self.right.size)
        least_us = least_retention(self.kind, sizes, self.size, self.advance, self.gap)
        return default_grace(self.kind, sizes, least_us, self.retention_us, self.retention_count)

    @property
    def keeping(self) -> RetainedCounts | None:
        """How many messages a join by time keeps; None for no limit."""
        if not self.by_time or not self.retention_count:
            return None
        sizes = (self.left.size, self.right.size)
        span = least_retention(self.kind, sizes, self.size, self.advance, self.gap) + self.grace_us
        return RetainedCounts(self.retention_count, self.retention_us, span)

    @property
    def retained(self) -> int:
        """How long a message is kept, on the axis."""
        return self.retention_us if self.by_time else self.retention_count

    @property
    def segment(self) -> int:
        """The length of a store's segment on the axis."""
        return segment_interval(self.retention_us) if self.by_time else max(self.retention_count // 2, 1)

    def places(self, time_us: Ints, position: Ints) -> Ints:
        """Return messages' places on the axis."""
        return time_us if self.by_time else position & ((1 << NUMBER_BITS) - 1)

    @property
    def suite_values(self) -> dict[str, int | bool]:
        """How far apart the messages of a pair may lie in time, each way; a century if that is no fixed time."""
        fixed = (self.left.size, self.right.size) if self.kind == SLIDING else (self.size - 1, self.size - 1)
        if not self.by_time or self.kind == SESSION or None in fixed:
            fixed = (_CENTURY_US, _CENTURY_US)
        alone = {f"{name}_alone": name in self.outer for name in SIDES}
        return {"left_us": fixed[0] or 0, "right_us": fixed[1] or 0, **alone}

    def fields(self, table: RowTable, texts: Mapping[str, str]) -> list[pa.Field]:
        """Return times, positions and columns of a pair's messages."""
        del table, texts
        places = (
            place
            for name, side in self.both.items()
            for place in (
                schemas.commented(f"{name}_time", TIME, f"Time of the message of {side.name}"),
                schemas.commented(f"{name}_position", pa.int64(), f"Position of the message of {side.name}"),
            )
        )
        return [*places, *column_fields(self.both)]

    @property
    def pairs_schema(self) -> pa.Schema:
        """The schema of the pairs among the outputs of a shard."""
        return JOINS.changes_schema(self.fields(JOINS, {}), marks=False)

    def under(self, live: Mapping[str, Any]) -> Self:
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        names = ("grace_us", "retention_us", "retention_count", "idle_us")
        return replace(super().under(live), emit=Policies(**live["emit"]), **{name: live[name] for name in names})


def message_schema(spec: JoinSpec, *, marks: bool) -> pa.Schema:
    """Return the schema of join_messages, the state's changelog, or without the marks of batch and attempt.

    A message is in it once: there are no updates. The columns of the other side are null.
    """
    return pa.schema(
        [
            schemas.commented(SIDE, pa.string(), "left, right"),
            schemas.commented("join_key", pa.string(), KEY),
            schemas.commented("time", TIME, "Time of the message"),
            schemas.commented(
                POSITION, pa.int64(), "Source partition's index * 2^40 + the message's number in it, from 1"
            ),
            *column_fields(spec.both),
            schemas.commented("revision", pa.int64(), "batch_id of the batch that brought the message"),
            schemas.commented(
                "is_late", pa.bool_(), "Whether the policy `late` says when its pairs are sent, or `early`"
            ),
            *(schemas.BATCH_MARKS if marks else []),
        ]
    )


RESTORED = ("key", SIDE, "time_us", POSITION, "revision", "is_late", "waits", "kept", "close_us", "full_us")
"""The columns that a restore reads of each row of join_messages (`key` is join_key, `time_us` the time in microseconds, `waits`
whether it is not due yet, as far as batches say that, `kept` whether it is at or above the horizon, `close_us` how far the join has
come, `full_us` up to which end windows are full, null if pairs do not wait for that), besides all columns
`<name>_<column>`. Of an outer join these are also the messages right below the horizon: others may have had them as partners."""
