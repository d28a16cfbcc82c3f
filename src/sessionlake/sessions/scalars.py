"""How a column's values lie in an aggregate's state: as int64, float64 or bytes, and back."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.errors import ConfigError

LONG, DOUBLE, BYTES = pa.int64(), pa.float64(), pa.binary()


def state_type(type_: pa.DataType, what: str) -> pa.DataType:
    """Return the state type of a column type; `what` names the aggregate in the error."""
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_timestamp(type_) or type_ == pa.date32():
        return LONG
    if pa.types.is_floating(type_):
        return DOUBLE
    if pa.types.is_decimal(type_) and type_.precision <= 18:
        return LONG
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return BYTES
    raise ConfigError(f"aggregates.{what}: a column of type {type_} can't be aggregated; cast it to a number, text or timestamp")


def to_state(values: pa.Array) -> pa.Array:
    """Return a column's values in their state type; nulls stay null."""
    type_ = values.type
    if pa.types.is_decimal(type_):
        # Up to 18 digits fit the low 64 bits of the 128-bit two's complement.
        words = np.frombuffer(values.buffers()[1], np.int64)[values.offset * 2 : (values.offset + len(values)) * 2 : 2]
        return pa.array(words, LONG, mask=pc.is_null(values).to_numpy(zero_copy_only=False))
    if type_ == pa.date32():
        return values.cast(pa.int32()).cast(LONG)
    if pa.types.is_timestamp(type_):
        return values.cast(pa.timestamp("us", type_.tz)).cast(LONG)
    return values.cast(state_type(type_, "?"))


def from_state(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Invert `to_state` for a column of the given type."""
    if pa.types.is_decimal(type_):
        return decimals(values, type_)
    if type_ == pa.date32():
        return values.cast(pa.int32()).cast(type_)
    return values.cast(type_)


def decimals(unscaled: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return unscaled int64 values as decimals of the given precision and scale."""
    filled = pc.fill_null(unscaled, 0).to_numpy(zero_copy_only=False)
    words = np.empty((len(filled), 2), np.int64)
    words[:, 0], words[:, 1] = filled, filled >> 63
    plain = pa.Array.from_buffers(type_, len(filled), [None, pa.py_buffer(words)])
    return plain if unscaled.null_count == 0 else pc.if_else(pc.is_valid(unscaled), plain, pa.scalar(None, type_))
