"""Windows by time as arithmetic, and the specification of a pipeline that workers get. Times are microseconds.

An event at time x belongs to one slice, the longest stretch of time that no window's bound cuts; a window is a run of
consecutive slices. Ends are exclusive here, of every kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from sessionlake.columnar.arrays import Ints
from sessionlake.operators.shared.windowing.emission import Progress, next_progress
from sessionlake.operators.shared.windowing.policies import Policies
from sessionlake.operators.shared.windowing.retained_counts import RetainedCounts
from sessionlake.operators.windows.table import tables_of
from sessionlake.stream import ingest
from sessionlake.stream.described import AggregatedSpec
from sessionlake.warehouse.row_table import RowTable

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
class WindowSpec(AggregatedSpec):
    """A pipeline's windows, aggregates and events, and when which windows are sent."""

    windows: TimeWindows
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

    @property
    def inclusive_us(self) -> int:
        """Microseconds from an end as it is shown to the end of the rules: a sliding window's shown end is in it."""
        return 1 if self.is_sliding else 0

    @property
    def tables(self) -> tuple[RowTable, ...]:
        """The tables in the order of their commits."""
        return tables_in(self.windows, self.emit)

    @property
    def suite_values(self) -> dict[str, int | bool]:
        """The arrangement of windows, and whether their rows carry states."""
        windows = self.windows
        grid = (windows.advance_us, windows.offset_us) if isinstance(windows, Grid) else (1, 0)
        lie = {"size_us": windows.size_us, "advance_us": grid[0], "offset_us": grid[1]}
        return {**lie, "with_state": self.rows_are_state}

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


def tables_in(windows: TimeWindows, emit: Policies) -> tuple[RowTable, ...]:
    """Return the tables in the order of their commits."""
    return tables_of(is_sliding=isinstance(windows, Sliding), rows_are_state=rows_are_state(windows, emit))
