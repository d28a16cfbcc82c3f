"""Measures of a sample: how full windows of each length would be, how far out of order updates come, and the effect of grace and retention."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sessionlake.column_names import parts_of, title_of
from sessionlake.columnar.arrays import Ints
from sessionlake.config.durations import parse_duration
from sessionlake.operators.keyed.section import RESERVED
from sessionlake.operators.windows.spec import Grid, Sliding, TimeWindows
from sessionlake.propose.choose import Choice, is_plain
from sessionlake.propose.measure import USUAL_GRACE, Batch, Lateness, Seen, lateness, look
from sessionlake.propose.sample import Sample
from sessionlake.sources.columns import EventColumns
from sessionlake.stream.watermark import NO_WATERMARK

SIZES = {
    "1 minute": "10 seconds",
    "5 minutes": "1 minute",
    "15 minutes": "1 minute",
    "1 hour": "5 minutes",
    "6 hours": "30 minutes",
    "1 day": "1 hour",
    "7 days": "1 day",
}
"""Examined sizes, each with the advance for proposed hopping windows."""
FULL_ENOUGH = 10
"""The smallest proposed size has windows with this many events on average: an aggregate of fewer says little."""
USUAL_SIZE = "1 hour"


@dataclass(frozen=True)
class MeasuredWindows:
    """The measures for windows of a type."""

    seen: Seen
    kind: str
    windows: dict[str, int]
    """Number of tumbling windows under each size of SIZES."""
    size: str
    lateness: Lateness

    @property
    def advance(self) -> str:
        """The proposed advance of hopping windows."""
        return SIZES[self.size]


def measure_windows(sample: Sample, columns: EventColumns, kind: str) -> MeasuredWindows:
    """Measure the sample's events, and how windows of a kind (tumbling, hopping, sliding) would lie in them."""
    batches, seen = look(sample, columns)
    if not seen.events:
        return MeasuredWindows(seen, kind, {}, USUAL_SIZE, Lateness({}, USUAL_GRACE, "30 days"))
    codes, times = (np.concatenate([batch[side] for batch in batches]) for side in (0, 1))
    by_size = {size: _windows(codes, times // parse_duration(size)) for size in SIZES}
    size = next((size for size, number in by_size.items() if seen.events >= FULL_ENOUGH * number), USUAL_SIZE)
    windows = windows_of(kind, size)
    return MeasuredWindows(seen, kind, by_size, size, lateness(size, partial(late_share, batches, windows)))


def windows_of(kind: str, size: str) -> TimeWindows:
    """Return the windows of a kind and a size of SIZES."""
    size_us = parse_duration(size)
    if kind == "sliding":
        return Sliding(size_us)
    return Grid(size_us, parse_duration(SIZES[size]) if kind == "hopping" else size_us, 0)


def late_share(batches: Sequence[Batch], windows: TimeWindows, grace: str, retention: str) -> float:
    """Return the share of events that a stream of these batches would not accept: they are late, or beyond retention.

    An event is late if the last window that can have it ends at or before the newest accepted time of earlier batches,
    less the grace (docs/rules.md, rule 102).
    """
    grace_us, retention_us = parse_duration(grace), parse_duration(retention)
    newest, refused, total = NO_WATERMARK, 0, 0
    for _, times in batches:
        late = windows.last_end(windows.slices_of(times)) <= newest - grace_us
        bad = late | (times < newest - retention_us)
        refused, total = refused + int(bad.sum()), total + len(times)
        newest = max(newest, int(times[~bad].max(initial=NO_WATERMARK)))
    return refused / total if total else 0.0


def _windows(codes: Ints, numbers: Ints) -> int:
    """Count the different pairs of a key's code and a window's number."""
    order = np.lexsort((numbers, codes))
    new = (np.diff(codes[order], prepend=-1) != 0) | (np.diff(numbers[order], prepend=0) != 0)
    return int(new.sum())


@dataclass(frozen=True)
class MeasuredTable:
    """The measures for a table of the latest rows."""

    seen: Seen
    columns: list[str]
    """Columns that a row can have: of plain types, and without a table's own names."""
    left_out: list[str]
    """The others."""
    lateness: Lateness
    """`grace` is the proposed retention, `late` the greatest share of updates that each would refuse."""


def measure_table(sample: Sample, choice: Choice, columns: EventColumns) -> MeasuredTable:
    """Measure the sample's updates, and in which order they come."""
    batches, seen = look(sample, columns)
    rest = [name for name in sample.types if name not in (choice.key, choice.time, choice.id)]
    rest.sort(key=lambda name: len(parts_of(name)))
    kept, names = [], set(RESERVED)
    for name in rest:
        title = title_of(name).lower()
        if title not in names and is_plain(sample.types[name]):
            kept.append(name)
            names.add(title)
    lateness_of_table = (
        lateness("1 day", lambda retention, _: refused_share(batches, retention)) if seen.events else None
    )
    left_out = [name for name in rest if name not in kept]
    return MeasuredTable(seen, kept, left_out, lateness_of_table or Lateness({}, USUAL_GRACE, USUAL_GRACE))


def refused_share(batches: Sequence[Batch], retention: str) -> float:
    """Return the share of updates older than a retention before the newest update of earlier batches.

    These are refused if they are not newer than a deletion (docs/rules.md, rule 150).
    """
    retention_us = parse_duration(retention)
    newest, refused, total = NO_WATERMARK, 0, 0
    for _, times in batches:
        refused, total = refused + int((times < newest - retention_us).sum()), total + len(times)
        newest = max(newest, int(times.max(initial=NO_WATERMARK)))
    return refused / total if total else 0.0
