"""Before the shuffle: events become partials. They are merged as far as that can't change which events are late."""

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import Events
from sessionlake.aggregates.partials import Partials, lift
from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.columnar.expressions import Expression
from sessionlake.columnar.records import UNTIL
from sessionlake.engine.operator import Counted, Keyed, Split
from sessionlake.operators.sessions.gaps import OUT_OF_RANGE, own_gaps
from sessionlake.operators.sessions.kernel import premerge
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.ingest import Judged, event_table, judge
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK

MERGED, ALONE, EMITTED = "merged", "alone", "emit"
"""Kinds of rows that go to shards: partials that are always accepted, events that may be late, events beyond
retention that are aggregated alone."""


def split_events(spec: SessionizerSpec, bounds: Bounds, clock_us: int, rows: Rows) -> Split:
    """Yield the rows of the kinds above for a source's rows, and the tables of `Judged.asides`."""
    judged = judge(spec.events, rows, clock_us, bounds.expired_us)
    gaps = None if spec.gap_by is None else _own_gaps(spec, spec.gap_by, judged)

    def until_of(at: Ints, events: Events) -> Ints | None:
        return None if gaps is None else spec.windows.open_until(events.time_us, gaps[at])

    def merge(at: Ints) -> tuple[Events, Partials, Bools]:
        events = judged.events(at)
        until = until_of(at, events)
        found = premerge(spec.aggregates, events, spec.windows, bounds.open_us, until, finals_last=spec.finals_last)
        return events, *found

    emitted = None
    if len(judged.expired):
        emitted, _ = judged.computed(lambda at: lift(spec.aggregates, judged.events(at)), judged.expired)
    (events, merged, alone), at = judged.computed(merge, judged.good)
    yield from judged.asides(lambda: events)
    if emitted is not None:
        yield Keyed(EMITTED, emitted.keys, emitted.to_table())
    yield Keyed(MERGED, merged.keys, merged.to_table())
    if spec.emit is not None:
        # Shards need it before they know which events are late; these lie before the watermark, and do not count.
        yield Counted({MAX_TIME: int(events.time_us.max(initial=NO_WATERMARK))})
    if alone.any():
        old = np.flatnonzero(alone)
        table = event_table(spec.events, events).take(pa.array(old))
        table = table.append_column("raw", judged.rows.raw(at[old]))
        table = table.append_column("source", judged.rows.source(at[old]))
        until = until_of(at, events)
        if until is not None:
            table = table.append_column(UNTIL, pa.array(until[old]))
        yield Keyed(ALONE, combined(table["key"]), table)


def _own_gaps(spec: SessionizerSpec, expression: Expression, judged: Judged) -> Ints:
    """Return the gap of each good row, at its place; rows whose gap is out of range are good no more."""
    found, wrong = own_gaps(spec, expression, judged.events(judged.good))
    gaps = np.zeros(judged.rows.table.num_rows, np.int64)
    gaps[judged.good] = found
    if wrong.any():
        judged.refused.append((judged.good[wrong], pa.array([OUT_OF_RANGE] * int(wrong.sum()), pa.string())))
        judged.good = judged.good[~wrong]
    return gaps
