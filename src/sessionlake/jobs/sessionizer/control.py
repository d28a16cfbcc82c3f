"""The control input: corrections as rows of their table become restated partials, removals and puts."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.engine.operator import by_shard, shard_of
from sessionlake.jobs.sessionizer.mapper import DEAD_SCHEMA, FUTURE, TOMBSTONES, Split
from sessionlake.jobs.sessionizer.spec import SessionizerSpec
from sessionlake.operators.sessions.corrections import REMOVE_SCHEMA
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.sessions.partials import Partials, StateCodec
from sessionlake.sources.decoding.raw import raw_text
from sessionlake.sources.decoding.safe_cast import nulls_of
from sessionlake.sources.decoding.times import parse_times

KINDS = ("restate", "replace", "tombstone", "advance")


def split_corrections(spec: SessionizerSpec, bounds: Bounds, clock_us: int, table: pa.Table) -> Split:
    """Yield (shard, kind, rows) of the kinds restate, remove, put, dead and tally.

    An advance further than events may move the watermark, or than closing every session takes, would make all later
    events dead letters for good: it is refused.
    """
    table = table.combine_chunks()
    kind = combined(table["kind"])
    malformed = _malformed(table)
    restate = pc.equal(pc.fill_null(kind, ""), "restate").to_numpy(zero_copy_only=False)
    expired = restate & ~malformed & (_micros(table["session_start"]) < bounds.expired_us)
    ahead = _is_ahead(spec, bounds, clock_us, table) & ~malformed
    for mask, reason in ((malformed, "malformed correction"), (ahead, FUTURE), (expired, "expired")):
        if mask.any():
            dead = _dead(table.filter(pa.array(mask)), reason)
            yield from by_shard("dead", dead, shard_of(combined(dead["source"].fill_null("")), spec.shards))
    good = table.filter(pa.array(~malformed & ~ahead & ~expired))
    for name, split in (("restate", _restated), ("replace", _replaced), ("tombstone", _tombstones)):
        rows = good.filter(pc.equal(good["kind"], name))
        if rows.num_rows:
            yield from split(spec, rows)
    advances = good.filter(pc.equal(good["kind"], "advance"))
    tally = {"corrections": table.num_rows, "malformed": int((malformed | ahead).sum()), "expired": int(expired.sum())}
    if advances.num_rows:
        tally |= {"applied": advances.num_rows, "max_advance": int(_micros(advances["session_start"]).max())}
    yield 0, "tally", pa.table({"name": list(tally), "value": pa.array(tally.values(), pa.int64())})


def _is_ahead(spec: SessionizerSpec, bounds: Bounds, clock_us: int, table: pa.Table) -> Bools:
    """Say which rows advance further than closing takes beyond the clock and its skew, or the watermark, whichever is later."""
    if spec.max_future_skew_us is None:
        return np.zeros(table.num_rows, bool)
    to_close = spec.windows.gap_us + spec.windows.grace_us + 1
    latest = max(clock_us + spec.max_future_skew_us, bounds.close_us + to_close - 1)
    advance = pc.equal(pc.fill_null(combined(table["kind"]), ""), "advance").to_numpy(zero_copy_only=False)
    return advance & (_micros(table["session_start"]) > latest + to_close)


def archived_tombstones(spec: SessionizerSpec, table: pa.Table) -> Split:
    """Yield a topic's well-formed tombstones for the archive, where there is one: a later backfill must know of them."""
    good = table.filter(pa.array(~_malformed(table))) if spec.archive else table.slice(0, 0)
    columns = good.select(["correction_id", "session_key", "session_start", "revision"])
    yield from by_shard(TOMBSTONES, columns, shard_of(combined(good["session_key"]), spec.shards))


def _malformed(table: pa.Table) -> np.ndarray:
    kind = pc.fill_null(combined(table["kind"]), "")

    def null(*names: str) -> np.ndarray:
        masks = [pc.is_null(combined(table[name])).to_numpy(zero_copy_only=False) for name in names]
        return np.logical_or.reduce(masks)

    def is_kind(name: str) -> np.ndarray:
        return pc.equal(kind, name).to_numpy(zero_copy_only=False)

    unknown = ~pc.is_in(kind, value_set=pa.array(KINDS)).to_numpy(zero_copy_only=False) | null("correction_id")
    keyless = pc.equal(pc.fill_null(combined(table["session_key"]), ""), "").to_numpy(zero_copy_only=False)
    backwards = _micros(table["session_end"]) < _micros(table["session_start"])
    no_start, no_end = (_no_time(table[f"session_{edge}"]) for edge in ("start", "end"))
    restate = is_kind("restate") & (keyless | no_start | no_end | null("event_count", "state") | backwards)
    empty = pc.equal(pc.add(_length(table["remove"]), _length(table["put"])), 0).to_numpy(zero_copy_only=False)
    incomplete = _incomplete(combined(table["remove"])) | _incomplete(combined(table["put"]))
    replace = is_kind("replace") & (keyless | empty | incomplete)
    tombstone = is_kind("tombstone") & (keyless | no_start | null("revision"))
    return unknown | restate | replace | tombstone | (is_kind("advance") & no_start)


def _no_time(times: pa.ChunkedArray | pa.Array) -> Bools:
    """Say which times are null or out of the years 1 to 9999, which is all that Python has dates for."""
    return parse_times(times, None)[1]


def _incomplete(lists: pa.Array) -> Bools:
    """Say which lists have a session that lacks something, or that is out of all times."""
    items = pc.list_flatten(lists)
    out = np.zeros(len(lists), bool)
    for field in items.type:
        values = pc.struct_field(items, field.name)
        lacking = _no_time(values) if pa.types.is_timestamp(field.type) else nulls_of(values)
        out[pc.list_parent_indices(lists).to_numpy()[lacking]] = True
    return out


def _length(lists: pa.ChunkedArray) -> pa.Array:
    return pc.fill_null(pc.list_value_length(combined(lists)), 0)


def _micros(times: pa.ChunkedArray | pa.Array) -> Ints:
    return pc.fill_null(combined(times).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def _dead(table: pa.Table, reason: str) -> pa.Table:
    # Times as numbers: Python can't hold all of them.
    plain = table.cast(pa.schema([(field.name, _plain(field.type)) for field in table.schema]))
    texts = (str({k: v for k, v in row.items() if v is not None}) for row in plain.to_pylist())
    raw = pa.array([raw_text(text.encode()) for text in texts])
    start, no_start = parse_times(table["session_start"], None)
    arrays = [
        pa.repeat(reason, table.num_rows),
        table["kind"],
        table["session_key"],
        pa.array(start, mask=no_start),
        raw,
        table["correction_id"],
    ]
    return pa.Table.from_arrays(
        [combined(a).cast(f.type) for a, f in zip(arrays, DEAD_SCHEMA, strict=True)], schema=DEAD_SCHEMA
    )


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return a type with numbers, microseconds since the epoch, in place of times."""
    if pa.types.is_list(type_):
        return pa.list_(_plain(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _plain(field.type)) for field in type_])
    return pa.int64() if pa.types.is_timestamp(type_) else type_


def _partials(
    spec: SessionizerSpec, ids: pa.Array, keys: pa.Array, start: Ints, end: Ints, count: Ints, state: pa.Array
) -> pa.Table:
    states = StateCodec(spec.aggregates).decode(state)
    table = Partials(keys, start, end, count, count * 0, states).to_table()
    return table.append_column("correction_id", ids)


def _restated(spec: SessionizerSpec, rows: pa.Table) -> Split:
    keys = combined(rows["session_key"])
    times = _micros(rows["session_start"]), _micros(rows["session_end"])
    table = _partials(
        spec, combined(rows["correction_id"]), keys, *times, rows["event_count"].to_numpy(), combined(rows["state"])
    )
    yield from by_shard("restate", table, shard_of(keys, spec.shards))


def _tombstones(spec: SessionizerSpec, rows: pa.Table) -> Split:
    keys = combined(rows["session_key"])
    arrays = [
        combined(rows["correction_id"]),
        keys,
        pa.array(_micros(rows["session_start"])),
        combined(rows["revision"]),
    ]
    yield from by_shard("remove", pa.Table.from_arrays(arrays, schema=REMOVE_SCHEMA), shard_of(keys, spec.shards))


def _replaced(spec: SessionizerSpec, rows: pa.Table) -> Iterator[tuple[int, str, pa.Table]]:
    for column, kind in (("remove", "remove"), ("put", "put")):
        lists = combined(rows[column])
        owner = pc.list_parent_indices(lists)
        items = pc.list_flatten(lists)
        keys, ids = combined(rows["session_key"]).take(owner), combined(rows["correction_id"]).take(owner)
        start = _micros(pc.struct_field(items, "session_start"))
        if kind == "remove":
            table = pa.Table.from_arrays(
                [ids, keys, pa.array(start), pc.struct_field(items, "revision")], schema=REMOVE_SCHEMA
            )
        else:
            count = pc.struct_field(items, "event_count").to_numpy(zero_copy_only=False)
            end = _micros(pc.struct_field(items, "session_end"))
            table = _partials(spec, ids, keys, start, end, count, pc.struct_field(items, "state"))
        yield from by_shard(kind, table, shard_of(keys, spec.shards))
