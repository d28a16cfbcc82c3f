"""The contract of an event: a key that isn't empty and a time, nothing of the wrong type."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.equality import key_of, text_of
from sessionlake.sources.columns import TIMESTAMP, EventColumns
from sessionlake.sources.decoding.casting import Micros, parse_times
from sessionlake.sources.decoding.decoded import error_array, shorten, shown
from sessionlake.sources.decoding.safe_cast import Mask, nulls_of


@dataclass(frozen=True, slots=True)
class Checked:
    """The columns that the stream needs for each row.

    `time_us` is 0 if `no_time` says that there is none. `reason` is null for rows that keep the contract, and None
    altogether when all do. `key` may be a dictionary of text.
    """

    time_us: Micros
    no_time: Mask
    key: pa.Array
    event_id: pa.Array | None
    reason: pa.Array | None


def check(
    decoded_table: pa.Table,
    error: pa.Array | None,
    columns: EventColumns,
    max_key_bytes: int | None = None,
    clock_us: int = 0,
    compared_as: Sequence[pa.DataType | None] = (),
) -> Checked:
    """Check decoded rows.

    The reason is the first of: the decode error, null key, empty key, key too long, null time, unparsable time. A key of
    more than `max_key_bytes`, in UTF-8, becomes null. If the columns name no key, every row has the empty one. If they
    name further ones, the key is a JSON array of the texts of all, and null if one of them is. So is an id. If they name
    no time, every row has that of the clock. `compared_as` are the types as which the columns of the key are compared
    with others (`columnar.equality.instant`).
    """
    if columns.key is None:
        key, lengths = pa.repeat("", decoded_table.num_rows), None
    elif columns.further_keys:
        key = key_of([decoded_table.column(name) for name in columns.key_columns], compared_as)
        lengths = pc.binary_length(key)
    else:
        key, lengths = _keys(decoded_table.column(columns.key), max_key_bytes, *compared_as)
    if columns.time is None:
        times = pa.array(np.full(decoded_table.num_rows, clock_us)).cast(TIMESTAMP)
    else:
        times = decoded_table.column(columns.time).combine_chunks()
    time_us, no_time = parse_times(times, columns.time_unit)
    ids = [decoded_table.column(name) for name in columns.id_columns]
    event_id = key_of(ids).cast(pa.string()) if ids else None
    too_long = _too_long(lengths, max_key_bytes)
    reason = _reason(key, lengths, too_long, times, no_time, error)
    if too_long:
        key = pc.if_else(pc.greater(lengths, max_key_bytes), pa.scalar(None, pa.string()), key)
    return Checked(time_us, no_time, key, event_id, reason)


def _keys(
    values: pa.ChunkedArray, limit: int | None, compared_as: pa.DataType | None = None
) -> tuple[pa.Array, pa.Array | None]:
    """Return keys and their bytes; for a dictionary without nulls that keeps all rules, itself and None."""
    if not pa.types.is_dictionary(values.type):
        key = text_of(values, compared_as)
        return key, pc.binary_length(key)
    encoded = values.combine_chunks()
    bounds = pc.min_max(pc.binary_length(encoded.dictionary))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if not encoded.null_count and (least is None or (least > 0 and (limit is None or most <= limit))):
        return encoded, None
    key = encoded.dictionary_decode()
    return key, pc.binary_length(key)


def _too_long(lengths: pa.Array | None, limit: int | None) -> dict[int, str]:
    """Return why keys are too long, by row."""
    if lengths is None or limit is None or (pc.max(lengths).as_py() or 0) <= limit:
        return {}
    rows = pc.indices_nonzero(pc.greater(lengths, limit).fill_null(pa.scalar(value=False))).to_pylist()
    return {row: f"key too long: {lengths[row].as_py()} bytes, event.max_key_bytes is {limit}" for row in rows}


def _reason(
    key: pa.Array,
    lengths: pa.Array | None,
    too_long: dict[int, str],
    times: pa.Array,
    no_time: Mask,
    error: pa.Array | None,
) -> pa.Array | None:
    empty = np.zeros(len(key), np.bool_)
    if lengths is not None:
        empty = pc.equal(lengths, 0).fill_null(pa.scalar(value=False)).to_numpy(zero_copy_only=False)
    failed = np.zeros(len(key), np.bool_) if error is None else ~nulls_of(error)
    no_key = nulls_of(key)
    broken = np.flatnonzero(failed | no_key | empty | no_time)
    if too_long:
        broken = np.union1d(broken, np.fromiter(too_long, np.int64))
    if not len(broken):
        return None
    no_value = nulls_of(times)
    told = np.flatnonzero(failed)
    reasons: dict[int, str] = (
        {} if error is None else dict(zip(told.tolist(), error.take(told).to_pylist(), strict=True))
    )
    for row in broken.tolist():
        if failed[row]:
            continue
        if no_key[row] or empty[row]:
            reasons[row] = "null key" if no_key[row] else "empty key"
        elif row in too_long:
            reasons[row] = too_long[row]
        elif no_value[row]:
            reasons[row] = "null time"
        else:
            reasons[row] = f"unparsable time: {_quoted(times[row])}"
    return error_array(len(key), reasons)


def _quoted(value: pa.Scalar) -> str:
    text = shown(value)
    return shorten(text if text[:1] in {"'", '"'} else f"'{text}'")
