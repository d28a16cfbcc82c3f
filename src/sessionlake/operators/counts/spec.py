"""Windows by count as arithmetic, and the specification of a pipeline that workers get.

A *series* is a list of messages that are numbered from 1 on: the messages of a key (`per = "key"`), or all messages of a
source partition (`per = "partition"`, and sessions). A window aggregates the messages of one key. Both bounds of a window
are numbers that it has: [1, 3] are three messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.operators.shared.windowing.policies import CLOSE, Policies
from sessionlake.stream import ingest
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.positions import PARTITION
from sessionlake.warehouse import schemas
from sessionlake.warehouse.schemas import TIME

PER_KEY, PER_PARTITION = "key", "partition"
PARTITION_SIZE = PARTITION
"""Positions of a source partition."""


@dataclass(frozen=True)
class Grid:
    """Tumbling and hopping windows [start, start + size - 1], one every `advance` from the series' first number + offset.

    >>> Grid(10, 4).slice
    2
    """

    size: int
    advance: int
    offset: int = 0

    @property
    def slice(self) -> int:
        """Length of a slice: the longest stretch of numbers that no window's bound cuts."""
        return gcd(self.size, self.advance)

    @property
    def bucket(self) -> int:
        """Length of the stretch of ends that a list is of."""
        return self.advance


@dataclass(frozen=True)
class Sliding:
    """For each message i the window [i - size + 1, i]: SQL's ROWS BETWEEN size - 1 PRECEDING AND CURRENT ROW.

    The first ones hold fewer messages, and begin below the series' first number.
    """

    size: int

    @property
    def bucket(self) -> int:
        """Length of the stretch of ends that a list is of: nothing is ever listed."""
        return self.size


@dataclass(frozen=True)
class Sessions:
    """The messages of a key in a source partition, with at most `max_others` messages of other keys between two.

    >>> Sessions(5).gap
    6
    """

    max_others: int

    @property
    def gap(self) -> int:
        """The largest distance of two numbers that belong together."""
        return self.max_others + 1

    @property
    def bucket(self) -> int:
        """Length of the stretch of ends that a list is of."""
        return max(1, self.gap // 16)


Counts = Grid | Sliding | Sessions


@dataclass(frozen=True)
class CountSpec:
    """A pipeline's windows by count, aggregates and events, and when which windows are sent."""

    windows: Counts
    per: str
    """The messages that are numbered: PER_KEY or PER_PARTITION; sessions are always of a partition."""
    aggregates: tuple[Aggregate, ...]
    events: EventSpec
    emit: Policies
    retention_us: int

    @property
    def per_key(self) -> bool:
        """Whether a key's messages are numbered apart from others'."""
        return self.per == PER_KEY

    def under(self, live: Mapping[str, Any]) -> "CountSpec":
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        return replace(
            self,
            events=ingest.with_live_settings(self.events, live),
            emit=Policies(**live["emit"]),
            retention_us=live["retention_us"],
        )


def policies(early: str | int, tick_offset: int) -> Policies:
    """Return when windows are sent: full ones at once, and nothing is ever late."""
    return Policies(early=early, late=CLOSE, tick_offset=tick_offset)


def window_schema(spec: CountSpec, texts: Mapping[str, str], *, marks: bool) -> pa.Schema:
    """Return the schema of window_changelog, with or without the marks of batch and attempt; `texts` describe the aggregates."""
    numbers = "a key's number" if spec.per_key else "a position (docs/windows.md)"
    return pa.schema(
        [
            schemas.commented("op", pa.string(), "upsert, delete"),
            schemas.commented("window_key", pa.string(), "The key whose messages the window holds"),
            schemas.commented("window_start", pa.int64(), f"First message of the window, inclusive: {numbers}"),
            schemas.commented("window_end", pa.int64(), "Last message of the window, inclusive"),
            schemas.commented("event_count", pa.int64(), "Messages in the window, so far"),
            schemas.commented("revision", pa.int64(), "batch_id of the window's last change"),
            schemas.commented("trigger", pa.string(), "Why it was sent: early, full (docs/windows.md)"),
            schemas.commented("emitted_at", TIME, "The clock of the batch that sent the row"),
            *(schemas.commented(a.name, a.value_type, texts.get(a.name, a.name)) for a in spec.aggregates),
            *([schemas.commented("window_id", pa.int64(), "xxhash64(window_key, window_start)")] if marks else []),
            *(schemas.BATCH_MARKS if marks else []),
        ]
    )


def slice_schema(*, marks: bool) -> pa.Schema:
    """Return the schema of slice_changelog, the state's, or without the marks of batch and attempt."""
    return pa.schema(
        [
            schemas.commented("op", pa.string(), "upsert, delete"),
            schemas.commented("slice_key", pa.string(), "The key whose messages the slice holds"),
            schemas.commented("slice_start", pa.int64(), "First message that the slice can have, inclusive"),
            schemas.commented("slice_end", pa.int64(), "Last message that it has, inclusive"),
            schemas.commented("event_count", pa.int64(), "Messages in the slice"),
            schemas.commented("revision", pa.int64(), "batch_id of the slice's last change"),
            schemas.commented("first", pa.int64(), "The number of the key's first message, since it is known"),
            schemas.commented("newest", pa.int64(), "The newest event time of the key, microseconds"),
            schemas.commented("state", pa.binary(), "Packed aggregate states; what a restore needs"),
            *([schemas.commented("slice_id", pa.int64(), "xxhash64(slice_key, slice_start)")] if marks else []),
            *(schemas.BATCH_MARKS if marks else []),
        ]
    )
