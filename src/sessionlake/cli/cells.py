"""Values of rows as text for people, in a table, and as values that JSON has a form for."""

import json
import math
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

DIGITS = 15
"""How many digits of a number with a fraction are sure; more are the noise of its last bit."""
_MARKS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Marks that turn the direction of a text, so that it shows as another one, and separators of lines."""
_STEERING = (*range(10), *range(11, 32), *range(127, 160), *_MARKS)
"""Characters with which a text could steer the terminal; the end of a line is none of them."""
_UNPRINTABLE = {code: repr(chr(code))[1:-1] for code in _STEERING}
_ESCAPES = {code: f"\\u{code:04x}" for code in _STEERING}


def plain(value: Any) -> Any:
    """Return a value in JSON's form: times as ISO text, those with a zone in UTC; bytes in base64; NaN and infinities as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Decimal):
        return _number(value)
    if is_bytes(value):
        return b64encode(value).decode()
    return _iso(value) if isinstance(value, date | time) else _nested(value)


def cell(value: Any) -> str:
    """Return a value as a table shows it: times in UTC, numbers without the noise of their last bit, nothing for null."""
    if is_bytes(value):
        return f"<{len(value)} bytes>"
    return ("" if value is None else _text(value)).translate(_UNPRINTABLE)


def on_terminal(text: str) -> str:
    """Return lines of JSON or CSV without characters that would steer a terminal: JSON's escapes stand for them."""
    return text.translate(_ESCAPES)


def is_bytes(value: Any) -> bool:
    """Say whether a value is bytes, which nobody reads in a table."""
    return isinstance(value, bytes | bytearray | memoryview)


def is_number(value: Any) -> bool:
    """Say whether a value is a number, whose digits stand below those of others."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, Decimal | date | time):
        return str(value)
    found = plain(value)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _moment(value: datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    if not value.microsecond:
        return value.isoformat(" ")
    return value.isoformat(" ", "microseconds" if value.microsecond % 1000 else "milliseconds")


def _iso(value: date | time) -> str:
    known = isinstance(value, datetime) and value.tzinfo is not None
    return (value.astimezone(UTC) if known and isinstance(value, datetime) else value).isoformat()


def _number(value: float | Decimal) -> Any:
    if not math.isfinite(value):
        return str(value)
    return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else float(value)


def _nested(value: Any) -> Any:
    if hasattr(value, "asDict"):  # a row of Spark
        value = value.asDict()
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, Iterable):
        return [plain(part) for part in value]
    return str(value)
