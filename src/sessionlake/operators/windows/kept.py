"""Retention by number of events: how far back the newest events of a pipeline reach (docs/rules.md, rule 103).

Accepted events are counted by cells of time, so that a few numbers in the commit's state tell where the oldest one lies that
is kept. A cell goes as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sessionlake.columnar.arrays import Ints
from sessionlake.engine.operator import STATE
from sessionlake.stream.watermark import NO_WATERMARK

Cells = tuple[tuple[int, int], ...]
"""Start of each cell, microseconds, and how many accepted events lie in it; ascending."""
_PREFIX = f"{STATE}cell_"
_MOST_CELLS = 1024
"""Cells of which a state tells."""
_CELLS = 64
"""Cells of a retention: fewer would let go of more at once, more would make each commit longer."""


@dataclass(frozen=True)
class Keeping:
    """How many accepted events are kept, beside how long (microseconds)."""

    retention_count: int
    retention_us: int
    span_us: int
    """Length of a window: the events of the newest one are kept, however many they are."""

    @property
    def cell_us(self) -> int:
        """Length of a cell: no shorter than a window."""
        return max(self.span_us, self.retention_us // _CELLS)

    def counted(self, time_us: Ints) -> dict[str, int]:
        """Return a task's numbers of accepted events by cell.

        What lies further back than the retention from the newest is beyond it after the batch: it is left out, so that a
        task that reads years of history has no more numbers than another.
        """
        if not len(time_us):
            return {}
        recent = time_us[time_us >= time_us.max() - self.retention_us]
        starts, counts = np.unique(recent // self.cell_us * self.cell_us, return_counts=True)
        return {f"{_PREFIX}{start}": int(count) for start, count in zip(starts.tolist(), counts, strict=True)}

    def cells_after(self, before: Cells, stats: Mapping[str, int], expired_us: int) -> Cells:
        """Return the cells after a batch with these numbers, without those that begin before `expired_us`.

        Such a cell may have some events after it, which are not counted then: so a few too many are kept, never too few. The same
        holds of the oldest of a great many cells, as where one side of a join is far ahead of the other.
        """
        cells = dict(before)
        for name, count in stats.items():
            if name.startswith(_PREFIX):
                start = int(name.removeprefix(_PREFIX))
                cells[start] = cells.get(start, 0) + count
        return tuple(sorted((start, count) for start, count in cells.items() if start >= expired_us))[-_MOST_CELLS:]

    def kept_from(self, cells: Cells, watermark_us: int) -> int:
        """Return the start of the oldest cell that is kept: the first from which on no more than so many events lie.

        NO_WATERMARK where all are kept.
        """
        events, oldest = 0, watermark_us
        for start, count in reversed(cells):
            events += count
            if events > self.retention_count:
                return min(oldest, watermark_us - self.span_us)
            oldest = start
        return NO_WATERMARK
