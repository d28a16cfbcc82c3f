"""Texts of dead letters as the file that they came from."""

from collections.abc import Sequence
from dataclasses import replace

from sessionlake.config.layouts import Layout
from sessionlake.sources.decoding.csv_records import Grammar
from sessionlake.sources.decoding.rows import is_cut


def layout_again(layout: Layout | None) -> Layout | None:
    """Return the layout of dead letters of files, or of a topic's records (None); None if they don't say which fields are which."""
    if layout is not None and layout.format == "csv":
        return replace(layout, comment="") if layout.names else None
    if layout is not None and layout.format == "text":
        return replace(layout, comment="")
    return Layout("json")


def file_again(texts: Sequence[str | None], layout: Layout) -> tuple[list[int], bytes]:
    """Return which texts can be read as rows of a layout, and a file in which each of these is a row."""
    lines = [None if text is None or is_cut(text) else _line(text, layout) for text in texts]
    readable = [number for number, line in enumerate(lines) if line is not None]
    return readable, "".join(f"{lines[number]}\n" for number in readable).encode()


def _line(text: str, layout: Layout) -> str | None:
    """Return a text as one row; None if it is none."""
    if layout.format == "csv":
        whole = text and Grammar.of(layout).record.fullmatch(f"{text}\n".encode())
        return text if whole and whole[1] == text.encode() else None
    if layout.format == "text":
        # A carriage return before a break is no part of a line.
        return f"{text}\r" if text and "\n" not in text else None
    # In JSON line breaks stand between tokens only.
    line = text.replace("\r", " ").replace("\n", " ")
    return line if line.strip() else None
