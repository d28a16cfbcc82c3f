"""Retention by number of events: how far back the newest events of a pipeline reach (docs/rules.md, rule 103).

Accepted events are counted by cells of time, so that a few numbers in the commit's state give the time of the oldest one that
is kept. A cell goes as a whole. For example, with 1,000 events to keep and cells of one hour, the newest hours that together have
at most 1,000 events stay.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sessionlake.columnar.arrays import Ints
from sessionlake.engine.operator import StateStat
from sessionlake.stream.watermark import NO_WATERMARK

Cells = tuple[tuple[int, int], ...]
"""Start of each cell, microseconds, and how many accepted events lie in it; ascending."""
ACCEPTED = StateStat("cell")
"""The number of a cell's accepted events."""
_MOST_CELLS = 1024
"""The most cells in a state."""
_CELLS = 64
"""Cells of a retention: fewer would let go of more at once, more would make each commit longer."""


@dataclass(frozen=True)
class RetainedCounts:
    """A retention by number, next to one by time (microseconds): counts of accepted events by cell of time."""

    retention_count: int
    retention_us: int
    span_us: int
    """Length of a window: the events of the newest one are kept, however many they are."""

    @property
    def cell_us(self) -> int:
        """Length of a cell: no shorter than a window."""
        return max(self.span_us, self.retention_us // _CELLS)

    def counted(self, time_us: Ints, number: Ints | None = None) -> dict[str, int]:
        """Return a task's numbers of accepted events by cell; `number` says how many lie together, each one alone without it.

        >>> RetainedCounts(retention_count=2, retention_us=640, span_us=10).counted(np.array([0, 3, 12]))
        {'cell:0': 2, 'cell:10': 1}

        An event further back than the retention from the newest one is beyond it after the batch. It is left out: a
        task that reads years of history has no more numbers than another.
        """
        if not len(time_us):
            return {}
        recent = time_us >= time_us.max() - self.retention_us
        starts, place = np.unique(time_us[recent] // self.cell_us * self.cell_us, return_inverse=True)
        counts = np.bincount(place, None if number is None else number[recent]).astype(np.int64)
        return {ACCEPTED.of(start): int(count) for start, count in zip(starts.tolist(), counts, strict=True)}

    def cells_after(self, before: Cells, stats: Mapping[str, int], expired_us: int) -> Cells:
        """Return the cells after a batch with these numbers, without those that begin before `expired_us`.

        Such a cell may have some events after it, which are not counted then: so a few too many are kept, never too few. The same
        holds for the oldest of very many cells, for example if one side of a join is far ahead of the other.
        """
        cells = dict(before)
        for part, count in ACCEPTED.parts(stats):
            cells[int(part)] = cells.get(int(part), 0) + count
        # Ascending by start, so the slice keeps the newest cells.
        return tuple(sorted((start, count) for start, count in cells.items() if start >= expired_us))[-_MOST_CELLS:]

    def kept_from(self, cells: Cells, watermark_us: int) -> int:
        """Return the start of the oldest cell that is kept: from it on lie at most `retention_count` events.

        NO_WATERMARK if all are kept.
        """
        events, oldest = 0, watermark_us
        for start, count in reversed(cells):
            events += count
            if events > self.retention_count:
                return min(oldest, watermark_us - self.span_us)
            oldest = start
        return NO_WATERMARK
