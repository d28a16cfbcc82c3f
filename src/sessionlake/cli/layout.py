"""A table of plain text that fits a width: in columns, if need be with shorter times and ids, else each row turned on its side."""

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

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
    if hasattr(value, "asDict"):  # Spark's row
        value = value.asDict()
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, Iterable):
        return [plain(part) for part in value]
    return str(value)


_GAP = "  "
_LONG_ID, _SHOWN_OF_ID = 12, 8
_FRACTION = re.compile(r"\.\d+$")


def laid_out(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None, *, grouped: bool = False
) -> tuple[Text, list[str]]:
    """Return a table of the rows, and lines about the columns that it leaves out.

    `width` is that of a terminal. Without it each row is one line of any width, for programs. No value is broken over
    lines: rows that do not fit are printed with a line for each value. With `grouped` whole numbers have commas, which
    suits counts.
    """
    columns, rows, notes = _without_bytes(columns, rows)
    texts = [[f"{value:,}" if grouped and isinstance(value, int) else cell(value) for value in row] for row in rows]
    right = [_is_of_numbers([row[at] for row in rows]) for at in range(len(columns))]
    if width is None or _width(columns, texts) <= width:
        return _in_columns(columns, texts, right, ruled=width is not None), notes
    shorter = _shortened(columns, rows, texts)
    if _width(columns, shorter) <= width:
        told = "times to the second, ids cut; --format json has them in full"
        return _in_columns(columns, shorter, right, ruled=True), [*notes, told]
    return _on_their_sides(columns, texts, width), notes


def _without_bytes(
    columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> tuple[Sequence[str], Sequence[Sequence[Any]], list[str]]:
    """Leave out the columns of bytes, unless there are no others."""
    unread = {at for at in range(len(columns)) if any(is_bytes(row[at]) for row in rows)}
    if not unread or len(unread) == len(columns):
        return columns, rows, []
    kept = [at for at in range(len(columns)) if at not in unread]
    names = ", ".join(columns[at] for at in sorted(unread))
    note = f"left out, since it is bytes: {names}; --format json has it in base64"
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows], [note]


def _is_of_numbers(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(map(is_number, known))


def _width(columns: Sequence[str], texts: Sequence[Sequence[str]]) -> int:
    return sum(_widths(columns, texts)) + len(_GAP) * (len(columns) - 1)


def _widths(columns: Sequence[str], texts: Sequence[Sequence[str]]) -> list[int]:
    each = zip(columns, *texts, strict=True)
    return [max(cell_len(line) for text in column for line in text.split("\n")) for column in each]


def _shortened(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], texts: Sequence[Sequence[str]]
) -> list[list[str]]:
    return [
        [_shorter(name, value, text) for name, value, text in zip(columns, row, line, strict=True)]
        for row, line in zip(rows, texts, strict=True)
    ]


def _shorter(name: str, value: Any, text: str) -> str:
    if isinstance(value, datetime):
        return _FRACTION.sub("", text)
    if name.endswith("_id") and len(text) > _LONG_ID:
        return f"{text[:_SHOWN_OF_ID]}…"
    return text


def _in_columns(columns: Sequence[str], texts: Sequence[Sequence[str]], right: Sequence[bool], *, ruled: bool) -> Text:
    widths = _widths(columns, texts)
    lines = [Text(_line(columns, widths, right), style="bold" if ruled else "")]
    if ruled:
        lines.append(Text(_GAP.join("─" * width for width in widths), style="dim"))
    lines += [Text(line) for text in texts for line in _lines(text, widths, right)]
    return Text("\n", no_wrap=True).join(lines)


def _lines(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    """Return the lines of a row: as many as the text that has the most."""
    parts = [text.split("\n") for text in texts]
    most = max(map(len, parts), default=1)
    return [_line([part[at] if at < len(part) else "" for part in parts], widths, right) for at in range(most)]


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = [
        " " * (width - cell_len(text)) + text if number else set_cell_size(text, width)
        for text, width, number in zip(texts, widths, right, strict=True)
    ]
    return _GAP.join(cells).rstrip(" ")


def _on_their_sides(columns: Sequence[str], texts: Sequence[Sequence[str]], width: int) -> Text:
    head = max(map(cell_len, columns))
    pieces: list[Text] = []
    for number, row in enumerate(texts, 1):
        title = f"── row {number} "
        pieces.append(Text(title + "─" * max(0, min(width, 40) - len(title)), style="dim"))
        for name, text in zip(columns, row, strict=True):
            value = text.replace("\n", "\n" + " " * (head + len(_GAP)))
            label = set_cell_size(name, head) + _GAP if value else name
            pieces.append(Text.assemble((label, "bold"), value))
    return Text("\n", no_wrap=True).join(pieces)
