"""The layout of files, by the first bytes of one of them."""

import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.config.layouts import Format, Layout
from sessionlake.config.presets import PRESETS
from sessionlake.errors import SourceError
from sessionlake.sources.decoding.casting import parse_times
from sessionlake.sources.decoding.csv_records import Grammar
from sessionlake.sources.decoding.csv_rows import fields_of
from sessionlake.sources.decoding.documents import lists_in
from sessionlake.sources.decoding.pieces import BOM, open_stream

_HEAD_BYTES, _LINES, _RECORDS = 1 << 18, 1000, 200
_MOST = 0.95
_ENDINGS: dict[str, Format] = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
_DELIMITERS = ("\t", ";", "|", ",")
_COMMENT = "#"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_NOT_ALIKE = 0.8


def ending(file: Path) -> Format | None:
    """Return the format that a file's name says; None for other names."""
    endings = [_ENDINGS[suffix] for suffix in file.suffixes if suffix in _ENDINGS]
    return endings[-1] if endings else None


def layout_of(files: Sequence[Path], given: Format | None) -> tuple[Layout, dict[str, Any]]:
    """Return the layout of most files by their names and of the first of them by its first bytes, and the keys of a source that say it.

    SourceError for files of no format that is known.
    """
    named = Counter(found for found in map(ending, files) if found is not None)
    found = given or next((format_ for format_, _ in named.most_common(1)), None)
    first = next(file for file in files if given or ending(file) in (found, None))
    if found == "parquet":
        return Layout("parquet"), {}
    head = _head(first)
    if found is None and head.startswith(b"PAR1"):
        return Layout("parquet"), {}
    keys = _keys(head, found)
    if keys is None:
        raise SourceError(_unknown(first, found))
    format_ = keys.pop("format")
    preset = PRESETS.get(keys.get("preset", ""))
    if preset is not None:
        return Layout("text", pattern=preset.pattern, comment=preset.comment or ""), keys
    settings: dict[str, Any] = {name: tuple(value) if name == "names" else value for name, value in keys.items()}
    return Layout(format_, **settings), keys


def _unknown(first: Path, found: Format | None) -> str:
    log = "for a log write a config with source.pattern, a regular expression with named groups, or source.preset"
    if found is not None:
        return f"init: {os.fspath(first)!r} is no {found} that is known; {log}"
    return f"init: the format of {os.fspath(first)!r} is not known; pass --format json, csv or parquet; {log}"


def _head(file: Path) -> bytes:
    try:
        with open_stream(str(file), str(file)) as stream:
            head = stream.read(_HEAD_BYTES)
            if head.startswith(b"\x1f\x8b"):
                with gzip.open(file) as inner:
                    head = inner.read(_HEAD_BYTES)
    except (OSError, EOFError) as error:
        raise SourceError(f"init: {os.fspath(file)!r} can't be read ({error}); pass a place with events") from error
    return bytes(head).removeprefix(BOM)


def _keys(head: bytes, named: Format | None) -> dict[str, Any] | None:
    """Return the keys of a source's layout, `format` among them; None if no format fits."""
    if named == "json":
        return {"format": "json", **_of_json(head)}
    if named == "csv":
        return {"format": "csv", **(_of_csv(head, least=2) or {})}
    if named is None and head.lstrip()[:1] in (b"{", b"["):
        return {"format": "json", **_of_json(head)}
    preset = _preset(head)
    if preset is not None:
        return {"format": "text", "preset": preset}
    found = None if named == "text" or b"\0" in head else _of_csv(head, least=3)
    return None if found is None else {"format": "csv", **found}


def _of_json(head: bytes) -> dict[str, Any]:
    """Return `records` for a document: text that is no object a line, or one line most of which is a list of objects."""
    lines = [line for line in head.splitlines() if line.strip()]
    if not lines:
        return {}
    is_whole = len(head) < _HEAD_BYTES or len(lines) > 1
    first = _parsed(lines[0]) if is_whole else None
    found = lists_in(head)
    if not found:
        return {}
    path, size = max(found.items(), key=lambda item: item[1])
    is_lines = isinstance(first, dict) and (len(lines) > 1 or size < _NOT_ALIKE * len(head))
    return {} if is_lines else {"records": path}


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _lines(head: bytes) -> list[bytes]:
    """Return the first whole lines that are not empty."""
    lines = head.splitlines()
    whole = lines[:-1] if len(head) == _HEAD_BYTES and len(lines) > 1 else lines
    return [line for line in whole if line][:_LINES]


def _preset(head: bytes) -> str | None:
    texts = pa.array([line.decode(errors="replace") for line in _lines(head)], pa.string())
    for name, preset in PRESETS.items():
        rows = texts.filter(pc.invert(pc.starts_with(texts, preset.comment))) if preset.comment else texts
        matches = pc.sum(pc.match_substring_regex(rows, preset.pattern)).as_py() or 0
        if len(rows) and matches >= _MOST * len(rows):
            return name
    return None


def _of_csv(head: bytes, *, least: int) -> dict[str, Any] | None:
    """Return the keys of delimited text, those that are not the defaults; None if its records have not the same number of fields.

    `least` is the number of fields of text with commas.
    """
    lines = _lines(head)
    comment = _COMMENT if lines and lines[0].startswith(_COMMENT.encode()) else ""
    text = b"\n".join(line for line in lines if not comment or not line.startswith(_COMMENT.encode())) + b"\n"
    best: tuple[int, Layout, list[list[str]]] | None = None
    for delimiter in _DELIMITERS:
        for quote in ('"', ""):
            layout = Layout("csv", delimiter=delimiter, quote=quote)
            records = [fields_of(record, layout) for record in _records(text, layout)]
            alike = _alike(records)
            if alike >= (least if delimiter == "," else 2) and (best is None or alike > best[0]):
                best = alike, layout, records
    if best is None:
        return None
    fields, layout, records = best
    keys: dict[str, Any] = {} if layout.delimiter == "," else {"delimiter": layout.delimiter}
    keys |= {} if layout.quote and not _is_unquoted(text, layout) else {"quote": ""}
    if _has_value(records[0]):
        keys |= {"header": False, "names": [f"c{number}" for number in range(1, fields + 1)]}
    return keys | ({"comment": comment} if comment else {})


def _records(text: bytes, layout: Layout) -> Iterator[bytes]:
    found = Grammar.of(layout).record.finditer(text)
    return (match[1] for match, _ in zip(found, range(_RECORDS), strict=False) if match[1])


def _alike(records: Sequence[Sequence[str]]) -> int:
    """Return the number of fields that the first record and nearly all others have; 0 if they have others."""
    count = len(records[0]) if records else 0
    same = sum(len(record) == count for record in records)
    return count if records and same >= _MOST * len(records) else 0


def _is_unquoted(text: bytes, layout: Layout) -> bool:
    """Return whether text with tabs has quotes, none of which is around a field: then they are characters, as in JSON."""
    if layout.delimiter != "\t" or b'"' not in text:
        return False
    return re.search(rb'(?:^|\t)"[^\t\r\n]*"(?=[\t\r\n])', text, re.MULTILINE) is None


def _has_value(record: Sequence[str]) -> bool:
    """Return whether a record has a number or a time, so that it is no header."""
    texts = pa.array(record, pa.string())
    is_number = pc.any(pc.match_substring_regex(texts, _NUMBER)).as_py()
    return bool(is_number or not parse_times(texts, None)[1].all())
