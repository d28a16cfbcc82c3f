"""Windows by time as arithmetic, and the specification of a pipeline that workers get. Times are microseconds.

An event at time x belongs to one slice, the longest stretch of time that no window's bound cuts; a window is a run of
consecutive slices. Ends are exclusive here, of every kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.columnar.arrays import Ints
from sessionlake.operators.shared.windowing.emission import Progress, next_progress
from sessionlake.operators.shared.windowing.policies import Policies
from sessionlake.operators.shared.windowing.retained_counts import RetainedCounts
from sessionlake.stream import ingest
from sessionlake.stream.ingest import EventSpec
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.schemas import TIME

_BLOCK = 8
"""Slices of a block. With fewer slices a change writes less, and a window reads more values."""


@dataclass(frozen=True)
class Grid:
    """Tumbling and hopping windows [start, start + size), one every `advance` from the epoch + offset.

    For example, windows of 10 that begin every 4 have slices of 2 (the greatest common divisor). The slice that starts
    at 12 is in the windows that end at 14 (start 4), 18 and 22:

    >>> import numpy as np
    >>> grid, slices = Grid(10, 4, 0), np.array([12])
    >>> grid.slice_us, grid.first_end(slices).tolist(), grid.last_end(slices).tolist()
    (2, [14], [22])
    """

    size_us: int
    advance_us: int
    offset_us: int

    @property
    def slice_us(self) -> int:
        """Length of a slice."""
        return gcd(self.size_us, self.advance_us)

    @property
    def span_us(self) -> int:
        """Length of a window."""
        return self.size_us

    @property
    def block_us(self) -> int:
        """Length of a store's block."""
        return _BLOCK * self.slice_us

    def slices_of(self, time_us: Ints) -> Ints:
        """Return the start of the slice in which each time lies.

        >>> import numpy as np
        >>> Grid(10, 4, 0).slices_of(np.array([12, 13, 14])).tolist()
        [12, 12, 14]
        """
        return (time_us - self.offset_us) // self.slice_us * self.slice_us + self.offset_us

    def first_end(self, slices: Ints) -> Ints:
        """Return the end of the first window that has the slice that starts at each time."""
        return self.grid_after(slices + self.slice_us - self.size_us) + self.size_us

    def last_end(self, slices: Ints) -> Ints:
        """Return the end of the last such window."""
        return (slices - self.offset_us) // self.advance_us * self.advance_us + self.offset_us + self.size_us

    def done_at(self, slices: Ints) -> Ints:
        """Return the end of the last window on which the slice that starts at each time has an effect."""
        return self.last_end(slices)

    def grid_after(self, time_us: Ints) -> Ints:
        """Return the first start of a window at or after each time.

        >>> import numpy as np
        >>> Grid(10, 4, 0).grid_after(np.array([-1, 8, 9])).tolist()
        [0, 8, 12]
        """
        # -(-x // a) rounds x / a up, also for times before the epoch.
        return -((self.offset_us - time_us) // self.advance_us) * self.advance_us + self.offset_us


@dataclass(frozen=True)
class Sliding:
    """For each event time t the window [t - size, t], and, if it has an event, [t + 1, t + 1 + size] (KIP-450).

    The second has the events that are left when t has dropped out; without `exits` there is none, and the windows are those of SQL's
    RANGE BETWEEN size PRECEDING AND CURRENT ROW. A slice is one time.
    """

    size_us: int
    exits: bool = True

    @property
    def slice_us(self) -> int:
        """Length of a slice."""
        return 1

    @property
    def span_us(self) -> int:
        """Length of a window."""
        return self.size_us + 1

    @property
    def block_us(self) -> int:
        """Length of a store's block."""
        return self.span_us

    def slices_of(self, time_us: Ints) -> Ints:
        """Return the start of the slice that each time lies in."""
        return time_us

    def first_end(self, slices: Ints) -> Ints:
        """Return the end of the first window that can have the slice that starts at each time."""
        return slices + 1

    def last_end(self, slices: Ints) -> Ints:
        """Return the end of the last such window."""
        return slices + self.span_us

    def done_at(self, slices: Ints) -> Ints:
        """Return the end of the last window on which the slice at each time has an effect: that window begins right after it."""
        return slices + 1 + self.span_us


TimeWindows = Grid | Sliding


@dataclass(frozen=True)
class WindowSpec:
    """A pipeline's windows, aggregates and events, and when which windows are sent."""

    windows: TimeWindows
    aggregates: tuple[Aggregate, ...]
    events: EventSpec
    emit: Policies
    grace_us: int
    retention_us: int
    retention_count: int | None = None
    """How many accepted events are kept at most; None for no limit within the retention's time."""

    @property
    def keeping(self) -> RetainedCounts | None:
        """How events are counted for `retention_count`."""
        if self.retention_count is None:
            return None
        return RetainedCounts(self.retention_count, self.retention_us, self.windows.span_us)

    def next_progress(self, before: Progress, stats: Mapping[str, int]) -> Progress:
        """Return how far the pipeline is after a batch with these numbers, of map tasks and shards."""
        return next_progress(self.emit, self.grace_us, self.retention_us, before, stats, self.keeping)

    @property
    def rows_are_state(self) -> bool:
        """Whether the windows' own changelog has the state."""
        return rows_are_state(self.windows, self.emit)

    @property
    def slices_are_windows(self) -> bool:
        """Whether each window is one slice, as tumbling ones are."""
        return slices_are_windows(self.windows)

    @property
    def is_sliding(self) -> bool:
        """Whether windows begin and end at events."""
        return isinstance(self.windows, Sliding)

    def under(self, live: Mapping[str, Any]) -> "WindowSpec":
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        return replace(
            self,
            events=ingest.with_live_settings(self.events, live),
            emit=Policies(**live["emit"]),
            grace_us=live["grace_us"],
            retention_us=live["retention_us"],
            # Commits of older releases do not have it: they had no such policy.
            retention_count=live.get("retention_count"),
        )


def slices_are_windows(windows: TimeWindows) -> bool:
    """Say whether each window is one slice."""
    return windows.slice_us == windows.span_us


def rows_are_state(windows: TimeWindows, emit: Policies) -> bool:
    """Say whether a window is one slice and sent with every change, so that its rows are all the state there is."""
    return emit.updates and slices_are_windows(windows)


def window_schema(spec: WindowSpec, texts: Mapping[str, str], *, marks: bool) -> pa.Schema:
    """Return the schema of window_changelog, with or without the marks of batch and attempt; `texts` describe the aggregates."""
    values = [schemas.commented(a.name, a.value_type, texts.get(a.name, a.name)) for a in spec.aggregates]
    end = "inclusive" if spec.is_sliding else "exclusive"
    return pa.schema(
        [
            schemas.commented("op", pa.string(), "upsert, delete"),
            schemas.commented("window_key", pa.string(), "The key whose events the window holds"),
            schemas.commented("window_start", TIME, "Start of the window, inclusive"),
            schemas.commented("window_end", TIME, f"End of the window, {end}"),
            schemas.commented("event_count", pa.int64(), "Events in the window"),
            schemas.commented("revision", pa.int64(), "batch_id of the window's last change"),
            schemas.commented("trigger", pa.string(), "Why it was sent: early, full, late, restate (docs/windows.md)"),
            schemas.commented("emitted_at", TIME, "The clock of the batch that sent the row"),
            *([_AT_EVENT] if spec.is_sliding else []),
            *values,
            *([_STATE] if spec.rows_are_state else []),
            *([schemas.commented("window_id", pa.int64(), "xxhash64(window_key, window_start)")] if marks else []),
            *(schemas.BATCH_MARKS if marks else []),
        ]
    )


def slice_schema(spec: WindowSpec, *, marks: bool) -> pa.Schema:
    """Return the schema of slice_changelog, the state's, or without the marks of batch and attempt."""
    born = [
        schemas.commented("born", pa.int64(), "batch_id of the batch that made it"),
        schemas.commented("born_reach", pa.int64(), "The frontier before that batch, microseconds"),
    ]
    return pa.schema(
        [
            schemas.commented("op", pa.string(), "upsert, delete"),
            schemas.commented("slice_key", pa.string(), "The key whose events the slice holds"),
            schemas.commented("slice_start", TIME, "Start of the slice, inclusive"),
            schemas.commented("slice_end", TIME, "End of the slice, exclusive"),
            schemas.commented("event_count", pa.int64(), "Events in the slice"),
            schemas.commented("revision", pa.int64(), "batch_id of the slice's last change"),
            schemas.commented("reach", pa.int64(), "The frontier before that batch, microseconds"),
            *(born if spec.is_sliding else []),
            _STATE,
            *([schemas.commented("slice_id", pa.int64(), "xxhash64(slice_key, slice_start)")] if marks else []),
            *(schemas.BATCH_MARKS if marks else []),
        ]
    )


def snapshot_schema(of: Changelog, changes: pa.Schema) -> pa.Schema:
    """Return the schema of a snapshot, given that of its changelog."""
    date = schemas.commented(of.date, pa.date32(), f"UTC date of {of.start}")
    marks = {"op", *(field.name for field in schemas.BATCH_MARKS)}
    return pa.schema([*(field for field in changes if field.name not in marks), date])


_STATE = schemas.commented("state", pa.binary(), "Packed aggregate states; what a restore needs beyond the values")
_AT_EVENT = schemas.commented(
    "at_event", pa.bool_(), "Whether an event lies at the window's end (RANGE PRECEDING's rows)"
)
