"""Before the shuffle: rows of a side are judged, and go packed to the shard of their equal fields, each with its sign."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Events
from sessionlake.columnar.arrays import Bools, combined
from sessionlake.columnar.equality import text_of
from sessionlake.columnar.keys import joint_key
from sessionlake.engine.operator import BatchContext, Counted, Keyed, Split
from sessionlake.operators.shared.sides.columns import packed
from sessionlake.operators.shared.sides.pieces import counted, of_side
from sessionlake.operators.table_joins.spec import TableJoinSpec, TableSide
from sessionlake.operators.table_joins.table import CONTENT
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.ingest import Judged, judge
from sessionlake.stream.watermark import NO_WATERMARK, max_time_of

SIGN, LONE = "sign", "lone"
"""Columns of rows on their way to a shard: 1, or -1 of a row that is taken back; whether a field is null, so that it has no partner."""
ROW_SCHEMA = pa.schema([("key", pa.string()), (SIGN, pa.int64()), (LONE, pa.bool_()), (CONTENT, pa.binary())])
NULL_KEY = "[null]"
"""The key of rows whose only equal field is null. A text that is called so is refused."""


def split_rows(spec: TableJoinSpec, context: BatchContext, side: str, rows: Rows) -> Split:
    """Yield the rows of a side, and the pieces of `Judged.asides`. No row is late or beyond retention."""
    own = spec.both[side]
    judged = judge(own.events, rows, context.clock_us, NO_WATERMARK)
    events = judged.events(judged.good)
    keys, lone = _keys(own, events)
    fits = _fits(own, judged, keys, lone)
    if not fits.all():
        at = pa.array(np.flatnonzero(fits))
        judged.good, keys, lone = judged.good[fits], keys.take(at), lone[fits]
        events = judged.events(judged.good)
    yield from of_side(spec.both, side, judged.asides(lambda: replace(events, keys=keys)))
    signs = judged.signs(judged.good)
    # A row without a key has no partner: it is in a result only if its side's rows are there alone.
    kept = np.flatnonzero(~lone) if side not in spec.outer else np.arange(len(keys))
    stats = {"accepted": len(keys), "taken_back": int((signs < 0).sum()), "without_key": len(keys) - len(kept)}
    yield from counted(side, stats)
    newest = int(events.time_us.max(initial=NO_WATERMARK))
    yield Counted({max_time_of(side): own.events.moved_to(newest, context.clock_us)})
    index = pa.array(kept)
    names = keys.take(index)
    columns = [combined(events.columns[name]) for name in own.columns]
    content = packed(own, columns, len(keys)).take(index)
    yield Keyed(side, names, pa.table([names, signs[kept], lone[kept], content], schema=ROW_SCHEMA))


def _keys(own: TableSide, events: Events) -> tuple[pa.Array, Bools]:
    """Return the key of each row, and whether one of its fields is null."""
    as_ = own.events.compared_as or [None] * len(own.on)
    texts = [text_of(events.columns[name], type_).cast(pa.string()) for name, type_ in zip(own.on, as_, strict=True)]
    lone: Bools = np.logical_or.reduce([text.is_null().to_numpy(zero_copy_only=False) for text in texts])
    keys = joint_key(texts) if len(texts) > 1 else texts[0]
    if lone.any():
        parts = [pc.if_else(text.is_valid(), _quoted(text), "null") for text in texts]
        nulls = pc.binary_join_element_wise("[", pc.binary_join_element_wise(*parts, ","), "]", "")
        keys = pc.if_else(pa.array(lone), nulls, keys)
    return keys, lone


def _quoted(text: pa.Array) -> pa.Array:
    """Return texts as JSON's strings."""
    whole = joint_key([text.fill_null(""), pa.repeat("", len(text))])
    return pc.utf8_slice_codeunits(whole, 1, -4)


def _fits(own: TableSide, judged: Judged, keys: pa.Array, lone: Bools) -> Bools:
    """Say which of the good rows have a key that can be stored; refuse the others."""
    lengths = pc.binary_length(keys).to_numpy()
    fits = np.ones(len(keys), bool)
    limit = own.events.max_key_bytes
    reasons: list[tuple[Bools, pa.Array]] = []
    if limit is not None and (lengths > limit).any():
        long = lengths > limit
        told = [f"key too long: {n} bytes, event.max_key_bytes is {limit}" for n in lengths[long].tolist()]
        reasons.append((long, pa.array(told, pa.string())))
        fits &= ~long
    if len(own.on) == 1:
        taken = pc.equal(keys, NULL_KEY).to_numpy(zero_copy_only=False) & ~lone
        if taken.any():
            reasons.append((taken, pa.repeat(f"key {NULL_KEY!r} is the name of rows without one", int(taken.sum()))))
            fits &= ~taken
    for wrong, reason in reasons:
        judged.refused.append((judged.good[wrong], reason))
    return fits
