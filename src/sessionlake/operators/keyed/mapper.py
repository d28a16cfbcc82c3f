"""Before the shuffle: of each key's events in a task the latest one travels; those that it outranks are counted."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Events
from sessionlake.columnar.arrays import Bools, Ints, combined, plain_text
from sessionlake.engine.operator import BatchContext, Counted, Keyed, Split
from sessionlake.operators.keyed.order import Versions, latest, require_comparable, sums
from sessionlake.operators.keyed.spec import KeyedSpec, Progress
from sessionlake.operators.keyed.unavailable import Unsaid, said, unsaid
from sessionlake.sources.decoding.rows import Rows
from sessionlake.sources.record_columns import OFFSET, PARTITION
from sessionlake.stream.ingest import Judged, judge
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK

UPDATES = "updates"
"""Kind of the rows that go to shards."""
UNKNOWN = "unknown"
"""The count of values that were not said, and that no row before says."""
UNSAID = "unsaid"
"""The begin of the names of the columns that say whether a value of an update is not said."""
NET = "net"
"""The column of the rows that a task has added of an update's key, less those that it has taken back."""


def update_schema(spec: KeyedSpec) -> pa.Schema:
    """Return the schema of updates on their way to a shard: columns as column_<i>, null of deletes."""
    return pa.schema(
        [
            ("key", pa.string()),
            ("time_us", pa.int64()),
            ("offset", pa.int64()),
            ("partition", pa.int64()),
            ("id", pa.string()),
            ("deleted", pa.bool_()),
            *((f"column_{i}", type_) for i, type_ in enumerate(spec.types.values())),
            *((f"{UNSAID}_{i}", pa.bool_()) for i in range(len(spec.unsaid))),
            *([] if spec.not_one is None else [(NET, pa.int64())]),
        ]
    )


def split_updates(spec: KeyedSpec, context: BatchContext, rows: Rows) -> Split:
    """Yield the latest update of each key, and the tables of `Judged.asides`. No event is late."""
    at = Progress.of(context.state)
    judged = judge(spec.events, rows, context.clock_us, NO_WATERMARK if spec.by_offset else at.expired_us)
    _refuse_other_keys(spec, judged)
    events = judged.events(judged.good)
    yield from judged.asides(lambda: events)
    keys = plain_text(events.keys)
    signs, no_row = judged.signs(judged.good), spec.deleted(events)
    deleted = no_row | (signs < 0)
    # Numbered in the order of arrival: a shard sorts the updates of all map tasks.
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    net = [] if spec.not_one is None else [pa.array(sums(codes, np.where(no_row, 0, signs))[codes])]
    table, gone = _updates(spec, events, keys, deleted, codes, net)
    if spec.by_offset:
        require_comparable(codes, table["partition"].to_numpy())
    winners = latest(codes, versions_of(spec, table), by_offset=spec.by_offset)
    newest = spec.events.moved_to(int(events.time_us.max(initial=NO_WATERMARK)), context.clock_us)
    unknown = int(gone[winners].sum())
    counts = {"accepted": len(keys), "superseded": len(keys) - len(winners), MAX_TIME: newest}
    yield Counted(counts | ({UNKNOWN: unknown} if unknown else {}))
    yield Keyed(UPDATES, keys.take(pa.array(winners)), table.take(pa.array(winners)))


def _refuse_other_keys(spec: KeyedSpec, judged: Judged) -> None:
    """Refuse events whose keys are not of the format that the pattern of expiry reads times from."""
    key_format = None if spec.ttl is None else spec.ttl.key_format
    if key_format is None:
        return
    keys = plain_text(judged.checked.key.take(pa.array(judged.good)))
    fits = key_format.matches(keys)
    others = judged.good[~fits]
    judged.refused.append((others, pa.array([f"key is no {key_format.name}"] * len(others), pa.string())))
    judged.good = judged.good[fits]


def versions_of(spec: KeyedSpec, updates: pa.Table) -> Versions:
    """Return the columns of updates (`update_schema`) that decide their order."""
    deleted = combined(updates["deleted"]).to_numpy(zero_copy_only=False)
    return Versions(
        combined(updates["time_us"]).to_numpy(),
        combined(updates["offset"]).to_numpy(),
        deleted,
        lambda at: combined(updates["id"]).take(pa.array(at)),
        lambda at: packed_of(spec, updates, at),
        spec.events.id_order,
    )


def packed_of(spec: KeyedSpec, updates: pa.Table, at: Ints) -> pa.Array:
    """Return the packed columns of some updates; empty of deletes."""
    index = pa.array(at)
    columns = [combined(updates[f"column_{i}"]).take(index) for i in range(len(spec.columns))]
    return pc.if_else(combined(updates["deleted"]).take(index), b"", spec.pack(columns, len(at)))


def unsaid_of(spec: KeyedSpec, updates: pa.Table) -> Unsaid:
    """Return which values of updates are not said."""
    each = [combined(updates[f"{UNSAID}_{i}"]).to_numpy(zero_copy_only=False) for i in range(len(spec.columns))]
    return np.stack(each, axis=1)


def _updates(
    spec: KeyedSpec, events: Events, keys: pa.Array, deleted: Bools, codes: Ints, net: Sequence[pa.Array]
) -> tuple[pa.Table, Unsaid]:
    """Return events as updates, and which of their values were not said after a delete; `net` are the last columns."""
    n = len(keys)
    gone = pa.array(deleted)
    values = [combined(events.columns[name]) for name in spec.read]
    if deleted.any():
        values = [pc.if_else(gone, pa.scalar(None, value.type), value) for value in values]
    ids = pc.fill_null(events.event_id, "") if spec.has_ids and events.event_id is not None else pa.repeat("", n)
    none = pa.array(np.zeros(n, np.int64))
    place = [combined(events.columns[name]) if spec.has_offsets else none for name in (OFFSET, PARTITION)]
    bits: list[pa.Array] = []
    lost = np.zeros((n, len(values)), bool)
    if spec.unsaid:
        source = events.columns if events.source is None else events.source
        missing = unsaid([[combined(source[name]) for name in spec.unsaid[column]] for column in spec.columns], n)
        missing &= ~deleted[:, None]
        found = said(values, missing, codes, combined(place[0]).to_numpy(), deleted)
        values, lost = found.columns, found.gone
        bits = [pa.array(found.still[:, i]) for i in range(len(values))]
    arrays = [keys, pa.array(events.time_us), *place, ids, gone, *values, *bits, *net]
    return pa.Table.from_arrays(arrays, schema=update_schema(spec)), lost
