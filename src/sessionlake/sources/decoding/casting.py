"""Casting a decoded column to its pinned type, value by value if it must be."""

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.sources.columns import TIMESTAMP
from sessionlake.sources.decoding.safe_cast import Mask, cast_each, nulls_of, without_dictionary
from sessionlake.sources.decoding.times import parse_times

__all__ = ["cast_or_null", "parse_times"]

_BINARY = (pa.binary(), pa.large_binary(), pa.binary_view())
_NUMERIC_TEXT = r"^[+-]?(\.?[0-9]|[iInN])"
_TEXT_OF_BOOL = r"(?i)^(true|false|0|1)$"
_TEXT_OF_DATE = r"^\d{4}-\d{2}-\d{2}$"
_INTEGRAL = r"^(-?\d+)\.0*$"


def cast_or_null(values: pa.Array | pa.ChunkedArray, target: pa.DataType) -> tuple[pa.Array, Mask]:
    """Cast to `target`; the mask is true, and the value null, if a value that is there can't be cast.

    Text and bytes must be UTF-8. Numbers keep their value: no truncated fraction, no overflow; only
    int to double may round. Text such as `1.0` is a whole number. Timestamps are floored to microseconds.
    """
    plain = without_dictionary(values)
    missing = nulls_of(plain)
    if target == TIMESTAMP:
        micros, bad = parse_times(plain, None)
        return pa.array(micros, mask=bad).cast(TIMESTAMP), bad & ~missing
    result = _cast(_checked_text(plain), target)
    if result.null_count == plain.null_count:
        return result, missing & False
    return result, nulls_of(result) & ~missing


def _checked_text(values: pa.Array) -> pa.Array:
    """Turn all kinds of text and bytes into strings that are known to be UTF-8."""
    if values.type in (pa.large_string(), pa.string_view()):
        values = values.cast(pa.large_binary())
    elif values.type == pa.string():
        values = values.cast(pa.binary())
    return cast_each(values, pa.string()) if values.type in _BINARY else values


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type == target:
        return values
    if values.type == pa.string():
        return _cast_text(values, target)
    if pa.types.is_integer(values.type) and pa.types.is_decimal(target):
        # Arrow needs a type with 19 digits, even for small values, so the narrow type needs a second step.
        wide = cast_each(values, pa.decimal128(38, 0))
        return cast_each(wide, target)
    if pa.types.is_integer(values.type) and pa.types.is_floating(target):
        return cast_each(values, target, pc.CastOptions(target, allow_float_truncate=True))
    return cast_each(values, target)


def _cast_text(values: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_floating(target):
        return _without_overflow(values, _plain_cast_text(values, target))
    return _plain_cast_text(values, target)


def _without_overflow(values: pa.Array, doubles: pa.Array) -> pa.Array:
    """Turn infinities into nulls that are texts of other numbers, for example of 1e400."""
    infinite = pc.fill_null(pc.is_inf(doubles), fill_value=False)
    if not pc.any(infinite).as_py():
        return doubles
    overflowed = pc.and_(infinite, pc.match_substring_regex(values, r"\d"))
    return pc.if_else(pc.fill_null(overflowed, fill_value=False), pa.scalar(None, doubles.type), doubles)


def _plain_cast_text(values: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return values.cast(target)
    except pa.ArrowNotImplementedError:
        return pa.nulls(len(values), target)
    except pa.ArrowInvalid:
        pass
    if pa.types.is_integer(target):
        values = pc.replace_substring_regex(values, _INTEGRAL, r"\1")
    # Texts without the form of the type are dropped at once, because to find each of them by halving is slow.
    plausible = pc.match_substring_regex(values, _looks(target))
    return cast_each(pc.if_else(plausible, values, pa.scalar(None, values.type)), target)


def _looks(target: pa.DataType) -> str:
    if pa.types.is_boolean(target):
        return _TEXT_OF_BOOL
    return _TEXT_OF_DATE if pa.types.is_date(target) else _NUMERIC_TEXT
