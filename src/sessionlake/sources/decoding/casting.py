"""Casts of a decoded column to its pinned type: a value that can't be cast becomes null, never the column. Times of any form become UTC."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.time_formats import TimeFormat
from sessionlake.sources.decoding.safe_cast import Mask, cast_each, nulls_of, without_dictionary
from sessionlake.warehouse.schemas import TIME, YEAR_1_US, YEAR_9999_US

Micros = npt.NDArray[np.int64]

_US_PER = {"s": 1_000_000, "ms": 1_000, "us": 1, "D": 86_400_000_000}
_ZONED = r"[T ].*(Z|[+-]\d{2}(:?\d{2})?)$"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_ZONED_TIME = TIME
_NAIVE_TIME = pa.timestamp("us")
_SLICE_ROWS = 8192
_TRIED_ROWS = 64
_ISO = r"^\d{4}-\d{2}-\d{2}"
_OTHER_ZONES = (
    (r"(:\d{2}(?:\.\d+)?)(?: ?UTC| Z| ?z)$", r"\1Z"),
    (r"(:\d{2}(?:\.\d+)?) ([+-]\d{2}(?::?\d{2})?)$", r"\1\2"),
)
"""Zones as BigQuery, Ruby and others write them, each with its form in ISO 8601."""
_OTHER_T = r"^(\d{4}-\d{2}-\d{2})t"


def parse_times(values: pa.Array | pa.ChunkedArray, unit: str | TimeFormat | None) -> tuple[Micros, Mask]:
    """Parse timestamps, dates, ISO 8601 text or epoch numbers of `unit` into UTC microseconds; with a format its texts.

    A zone may follow a space, and may be `UTC` or `z`. Naive times are UTC. Finer than a microsecond is floored; float seconds and milliseconds are
    rounded to the nearest microsecond, for a double can't hold them exactly. The mask is true, and
    the time 0, for null, unparsable and out of year 1..9999.
    """
    flat = without_dictionary(values)
    kind = flat.type
    if pa.types.is_timestamp(kind):
        return _ints(flat.cast(pa.int64()), kind.unit)
    if pa.types.is_date32(kind):
        return _ints(flat.cast(pa.int32()).cast(pa.int64()), "D")
    if pa.types.is_date64(kind):
        return _ints(flat.cast(pa.int64()), "ms")
    if kind in (pa.string(), pa.large_string(), pa.string_view()):
        if isinstance(unit, TimeFormat):
            return _ints(unit.parse(flat.cast(pa.string())), "us")
        return _text(flat.cast(pa.string()), unit)
    return _epoch(flat, unit) if isinstance(unit, str) else _all_bad(len(flat))


def _epoch(values: pa.Array, unit: str) -> tuple[Micros, Mask]:
    if pa.types.is_integer(values.type):
        return _ints(cast_each(values, pa.int64()), unit)
    if pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        return _floats(values.cast(pa.float64(), safe=False), unit)
    return _all_bad(len(values))


def _all_bad(rows: int) -> tuple[Micros, Mask]:
    return np.zeros(rows, np.int64), np.ones(rows, np.bool_)


def _ints(values: pa.Array, unit: str) -> tuple[Micros, Mask]:
    """Scale whole numbers of `unit`, after a range check, so that no product overflows."""
    bad = nulls_of(values)
    numbers: Micros = values.fill_null(0).to_numpy() if values.null_count else values.to_numpy()
    if unit == "ns":
        micros = numbers // 1000
        bad |= (micros < YEAR_1_US) | (micros > YEAR_9999_US)
        return np.where(bad, 0, micros), bad
    factor = _US_PER[unit]
    low, high = -(-YEAR_1_US // factor), YEAR_9999_US // factor
    if len(numbers) and (numbers.min() < low or numbers.max() > high):
        bad |= (numbers < low) | (numbers > high)
    return np.where(bad, 0, numbers) * factor, bad


def _floats(values: pa.Array, unit: str) -> tuple[Micros, Mask]:
    numbers = values.fill_null(np.nan).to_numpy()
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.floor(numbers / 1000) if unit == "ns" else numbers * _US_PER[unit]
        micros = np.floor(scaled) if unit == "us" else np.rint(scaled)
        # A double near YEAR_9999_US steps by 32, so the bound is exclusive of its rounded-up neighbour.
        bad = ~((micros >= YEAR_1_US) & (micros < YEAR_9999_US))
    return np.where(bad, 0.0, micros).astype(np.int64), bad


def _text(values: pa.Array, unit: str | None) -> tuple[Micros, Mask]:
    """Cast homogeneous text at once; in a mixed column only the slices that are mixed are sorted by form."""
    forms = (_ZONED_TIME, _NAIVE_TIME) if unit is None else (pa.int64(),)
    # Arrow writes a message for every value that fails, so try each form on a few values first.
    form = next((form for form in forms if _castable(values[:_TRIED_ROWS], form)), None)
    if form is None and unit is None:
        values = _in_iso(values)
        form = next((form for form in forms if _castable(values[:_TRIED_ROWS], form)), None)
    if form is not None:
        try:
            return _ints(values.cast(form).cast(pa.int64()), unit or "us")
        except pa.ArrowInvalid:
            pass
    if len(values) <= _SLICE_ROWS:
        return _mixed_text(values, unit)
    parts = [_text(values[start : start + _SLICE_ROWS], unit) for start in range(0, len(values), _SLICE_ROWS)]
    return np.concatenate([micros for micros, _ in parts]), np.concatenate([bad for _, bad in parts])


def _in_iso(text: pa.Array) -> pa.Array:
    """Write the zones of times as ISO 8601 has them, and the `t` before a time in upper case."""
    for pattern, plain in (*_OTHER_ZONES, (_OTHER_T, r"\1T")):
        text = pc.replace_substring_regex(text, pattern, plain)
    return text


def _castable(values: pa.Array, form: pa.DataType) -> bool:
    try:
        values.cast(form)
    except pa.ArrowInvalid:
        return False
    return True


def _mixed_text(values: pa.Array, unit: str | None) -> tuple[Micros, Mask]:
    text = _in_iso(pc.utf8_trim_whitespace(values))
    iso = _matches(text, _ISO)
    zoned = iso & _matches(text, _ZONED)
    micros, bad = _all_bad(len(text))
    for rows, target in ((zoned, _ZONED_TIME), (iso & ~zoned, _NAIVE_TIME)):
        _put(micros, bad, rows, _iso(text.filter(pa.array(rows)), target))
    if unit is not None:
        rows = ~iso & _matches(text, r"^-?(\d+|0[xX][0-9a-fA-F]+)$")
        _put(micros, bad, rows, _whole_numbers(text.filter(pa.array(rows)), unit))
        rows = ~iso & bad & _matches(text, _NUMBER)
        _put(micros, bad, rows, _floats(cast_each(text.filter(pa.array(rows)), pa.float64()), unit))
    return micros, bad


def _matches(text: pa.Array, pattern: str) -> Mask:
    matches: Mask = (
        pc.match_substring_regex(text, pattern).fill_null(pa.scalar(value=False)).to_numpy(zero_copy_only=False)
    )
    return matches


def _put(micros: Micros, bad: Mask, rows: Mask, parsed: tuple[Micros, Mask]) -> None:
    micros[rows], bad[rows] = parsed


def _iso(text: pa.Array, target: pa.DataType) -> tuple[Micros, Mask]:
    """Parse ISO text of a zone form; Arrow reads at most six fractional digits, so cut the rest."""
    short = pc.replace_substring_regex(text, r"(\.\d{6})\d{1,3}(Z|[+-][\d:]+)?$", r"\1\2")
    parsed = cast_each(short, target)
    return _ints(parsed.cast(pa.int64()), "us")


def _whole_numbers(text: pa.Array, unit: str) -> tuple[Micros, Mask]:
    return _ints(cast_each(text, pa.int64()), unit)


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
    if target == TIME:
        micros, bad = parse_times(plain, None)
        return pa.array(micros, mask=bad).cast(TIME), bad & ~missing
    result = _cast(_checked_text(plain), target)
    if result.null_count == plain.null_count:
        return result, missing & False
    return result, nulls_of(result) & ~missing


def _checked_text(values: pa.Array) -> pa.Array:
    """Turn all kinds of text and bytes into valid UTF-8 strings."""
    if values.type in (pa.large_string(), pa.string_view()):
        values = values.cast(pa.large_binary())
    elif values.type == pa.string():
        values = values.cast(pa.binary())
    return cast_each(values, pa.string()) if values.type in _BINARY else values


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type == target:
        return values
    if pa.types.is_nested(target) != pa.types.is_nested(values.type):
        # Arrow would make a list of one value.
        return pa.nulls(len(values), target)
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
    """Turn infinities into nulls if they are texts of other numbers, for example 1e400."""
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
