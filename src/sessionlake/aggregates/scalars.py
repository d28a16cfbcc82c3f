"""How a column's values lie in an aggregate's state: as int64, float64 or bytes, and back.

Three types do for all columns, so that packing, the store and the shuffle know no others. Times are microseconds, dates
days since 1970, decimals their unscaled numbers.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, nullable, numbers, validity
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
    raise ConfigError(
        f"aggregates.{what}: a column of type {type_} can't be aggregated; name a field or an element, or cast it to a number, text or timestamp"
    )


def to_state(values: pa.Array) -> pa.Array:
    """Return a column's values in their state type; nulls stay null."""
    type_ = values.type
    if pa.types.is_decimal(type_):
        return nullable(decimal_words(values)[:, 0], validity(values), LONG)  # 18 digits fit the low word
    if type_ == pa.date32():
        return values.cast(pa.int32()).cast(LONG)
    if pa.types.is_timestamp(type_):
        return values.cast(LONG)
    return values.cast(state_type(type_, "?"))


def decimal_words(values: pa.Array) -> Ints:
    """Return the low and the high 64 bits of each decimal's unscaled two's complement, (n, 2); anything for nulls."""
    if not len(values):
        return np.zeros((0, 2), np.int64)
    wide = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    words = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset * 2 : (wide.offset + len(wide)) * 2]
    return words.reshape(-1, 2)


def from_state(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Invert `to_state` for a column of the given type."""
    if pa.types.is_decimal(type_):
        return decimals(values, type_)
    if type_ == pa.date32():
        return values.cast(pa.int32()).cast(type_)
    return values.cast(type_)


def decimals(unscaled: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return unscaled int64 values as decimals of the given precision and scale."""
    filled, valid = numbers(unscaled)
    return decimals_of_words(filled, filled >> 63, valid, type_)


def decimals_of_words(low: Ints, high: Ints, valid: Bools | None, type_: pa.DataType) -> pa.Array:
    """Return decimals of the given low and high 64 bits, null if not valid."""
    wide = pa.decimal128(type_.precision, type_.scale)
    words = np.ascontiguousarray(np.stack([low, high], axis=1))
    plain = pa.Array.from_buffers(wide, len(low), [None, pa.py_buffer(words)])
    return (plain if valid is None else pc.if_else(pa.array(valid), plain, pa.scalar(None, wide))).cast(type_)
