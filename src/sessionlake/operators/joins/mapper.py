"""Before the shuffle: messages of a side are judged, and go to the shard of their equal fields with the rows that number them."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Bools, Ints, combined, plain_text
from sessionlake.engine.operator import BatchContext, Counted, Keyed, Split
from sessionlake.operators.joins.axis import axis_of, grid_of
from sessionlake.operators.joins.rules import JoinProgress
from sessionlake.operators.joins.spec import JoinSpec
from sessionlake.operators.shared.sides.pieces import counted, joint_events, of_side
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.ingest import Judged, event_table, judge
from sessionlake.stream.outputs import LATE
from sessionlake.stream.positions import CHUNK, ROW, accepted_rows, chunk_of
from sessionlake.stream.watermark import NO_WATERMARK, max_time_of


def split_messages(
    spec: JoinSpec, at: JoinProgress, context: BatchContext, side: str, number: int, rows: Rows
) -> Split:
    """Yield the messages, the late ones separately, and the tables of `Judged.asides`.

    A message is late if no later message can join with it. It has a position all the same, with which it can be
    added again as if it were new. `number` is the place of the rows among those of their table.
    """
    own, chunk = spec.side(side), chunk_of(context, number)
    judged = judge(own.events, rows, context.clock_us, at.at.expired_us if spec.by_time else NO_WATERMARK)
    yield from of_side(spec.both, side, judged.asides(lambda: judged.events(judged.good)))
    yield from accepted_rows(side, rows, len(judged.good), chunk)
    time = judged.checked.time_us[judged.good]
    late = np.zeros(len(time), bool)
    if spec.by_time:
        late = axis_of(spec).open_until(side, time) < at.at.close_us
    yield from counted(side, {"accepted": int((~late).sum()), "late": int(late.sum())})
    if not late.all():
        yield Counted({max_time_of(side): int(time[~late].max())})
        if spec.keeping is not None:
            yield Counted(spec.keeping.counted(time[~late]))
        yield _messages(spec, at, side, judged, chunk, np.flatnonzero(~late))
    if late.any():
        yield _late(spec, at, side, judged, chunk, np.flatnonzero(late))


def is_late_class(spec: JoinSpec, at: JoinProgress, time_us: Ints) -> Bools:
    """Say which messages are older than the watermark, or of a full window, so that the policy `late` says when their pairs are sent."""
    if spec.until_full:
        return grid_of(spec).first_end(time_us) <= at.at.full_us
    return (time_us < at.at.watermark_us) & spec.by_time


def _messages(spec: JoinSpec, at: JoinProgress, side: str, judged: Judged, chunk: int, rows: Ints) -> Keyed:
    found = judged.events(judged.good[rows])
    keys = plain_text(found.keys)
    columns = {
        "key": keys,
        "time_us": pa.array(found.time_us),
        CHUNK: pa.repeat(chunk, len(rows)),
        ROW: pa.array(judged.rows.numbers(judged.good)[rows]),
        "is_late": pa.array(is_late_class(spec, at, found.time_us)),
        **{f"column_{i}": combined(found.columns[name]) for i, name in enumerate(spec.side(side).columns)},
    }
    return Keyed(side, keys, pa.table(columns))


def _late(spec: JoinSpec, at: JoinProgress, side: str, judged: Judged, chunk: int, rows: Ints) -> Keyed:
    """Return the rows of the table of late events. Only their shard knows their positions."""
    places = judged.good[rows]
    table = joint_events(spec.both, side, event_table(spec.side(side).events, judged.events(places)))
    more: Mapping[str, pa.Array] = {
        "raw": judged.rows.raw(places),
        "source": judged.rows.source(places),
        "close_us": pa.repeat(at.at.close_us, len(rows)),
        CHUNK: pa.repeat(chunk, len(rows)),
        ROW: pa.array(judged.rows.numbers(judged.good)[rows]),
    }
    for name, column in more.items():
        table = table.append_column(name, column)
    return Keyed(LATE, combined(table["key"]), table)
