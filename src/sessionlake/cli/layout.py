"""A table of plain text that fits a width: in columns, if need be with shorter times and ids, else each row turned on its side."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from sessionlake.cli.cells import cell, is_bytes, is_number

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
