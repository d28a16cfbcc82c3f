"""Measures of a sample for a keyed table: how far out of order updates come, and the effect of a retention."""

from collections.abc import Sequence
from dataclasses import dataclass

from sessionlake.config.durations import parse_duration
from sessionlake.operators.keyed.section import RESERVED
from sessionlake.propose.choose import Choice, is_plain
from sessionlake.propose.measure import USUAL_GRACE, Batch, Lateness, Seen, lateness, look
from sessionlake.propose.sample import Sample
from sessionlake.sources.columns import EventColumns
from sessionlake.stream.watermark import NO_WATERMARK


@dataclass(frozen=True)
class MeasuredTable:
    """The measures for a table of the latest rows."""

    seen: Seen
    columns: list[str]
    """Those that a row can have: of plain types, and not called as a table's own."""
    left_out: list[str]
    """The others."""
    lateness: Lateness
    """`grace` is the retention that is proposed, `late` the share of updates that each would refuse at the most."""


def measure_table(sample: Sample, choice: Choice, columns: EventColumns) -> MeasuredTable:
    """Measure the sample's updates, and in which order they come."""
    batches, seen = look(sample, columns)
    rest = [name for name in sample.types if name not in (choice.key, choice.time, choice.id)]
    kept, names = [], set(RESERVED)
    for name in rest:
        if name.lower() not in names and is_plain(sample.types[name]):
            kept.append(name)
            names.add(name.lower())
    found = lateness("1 day", lambda retention, _: refused_share(batches, retention)) if seen.events else None
    left_out = [name for name in rest if name not in kept]
    return MeasuredTable(seen, kept, left_out, found or Lateness({}, USUAL_GRACE, USUAL_GRACE))


def refused_share(batches: Sequence[Batch], retention: str) -> float:
    """Return the share of updates that are older than a retention before the newest one of earlier batches.

    These are refused if they are not newer than a deletion (docs/rules.md, rule 150).
    """
    retention_us = parse_duration(retention)
    newest, refused, total = NO_WATERMARK, 0, 0
    for _, times in batches:
        refused, total = refused + int((times < newest - retention_us).sum()), total + len(times)
        newest = max(newest, int(times.max(initial=NO_WATERMARK)))
    return refused / total if total else 0.0
