"""A sample of a source: columns, types, and rows in a stream's order."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.config.layouts import Format, Layout
from sessionlake.config.presets import PRESETS, Preset
from sessionlake.errors import SourceError
from sessionlake.propose.layouts import ending, layout_of
from sessionlake.propose.tables import numbers_in, read_delta, read_topic
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decoded import Decoded
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.nested import leaf_types
from sessionlake.sources.infer import chosen_types, scanned, text_types, types_of

SLICES = 50
"""Batches that rows of a file, a commit or a topic are cut into."""
_NOTHING = "init: the source holds no rows that can be read; pass a place with events"
_TOPIC = re.compile(r"kafka://(?P<servers>[^/]+)/(?P<topic>[^/]+)")


@dataclass(frozen=True)
class Sample:
    """The rows that were read."""

    name: str
    """A name for the pipeline."""
    source: dict[str, Any]
    """The keys of the config's section [source]; paths are absolute."""
    types: dict[str, pa.DataType]
    batches: list[pa.Table]
    """Rows in order of arrival; a table is the least that a batch of the stream reads."""
    cut: str
    """The unit of a batch: a file, a commit, or an equal share of the rows."""
    whole: bool
    """Whether the source holds no more than this."""
    numbers: dict[str, float] = field(default_factory=dict)
    """Text columns with some JSON numbers, and the share of rows with a number."""

    @property
    def preset(self) -> Preset | None:
        """The preset of a log; None for other sources."""
        return PRESETS.get(self.source.get("preset", ""))

    @property
    def rows(self) -> int:
        """All read rows, also rows that are no events."""
        return sum(batch.num_rows for batch in self.batches)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of all rows."""
        return pa.chunked_array([part for batch in self.batches for part in batch[name].chunks], self.types[name])

    def head(self, rows: int = 20_000) -> pa.Table:
        """Return the first rows."""
        return pa.concat_tables(self.batches).slice(0, rows)


def read_sample(place: str, most_bytes: int, file_format: Format | None = None, key: str | None = None) -> Sample:
    """Read the beginning of files, a Delta table or `kafka://servers/topic`: rows of up to `most_bytes` in memory.

    The type of the column `key` is that of a key (`infer_types`).
    SourceError if there is nothing to read.
    """
    topic = _TOPIC.fullmatch(place)
    if topic:
        servers, name = topic["servers"], topic["topic"]
        types, rows, numbers, whole = read_topic(servers, name, most_bytes, key)
        source = {"kind": "kafka", "bootstrap_servers": servers, "topic": name, "format": "json"}
        return replace(_sample(name_from(name), source, types, [rows], "", whole=whole), numbers=numbers)
    if "://" in place:
        raise SourceError(
            f"init: {place!r} is not on this machine; pass a local copy of some files, or kafka://servers/topic"
        )
    path = Path(place).resolve()
    if not path.exists():
        raise SourceError(
            f"init: {place!r} is not there; pass a file, a directory, a Delta table or kafka://servers/topic"
        )
    if (path / "_delta_log").is_dir():
        types, commits, whole = read_delta(path, most_bytes)
        source = {"kind": "delta", "path": str(path)}
        return _sample(name_from(path.name), source, types, commits, "a batch for each commit", whole=whole)
    return _of_files(path, most_bytes, file_format, key)


def _of_files(path: Path, most_bytes: int, given: Format | None, key: str | None) -> Sample:
    files = [path] if path.is_file() else _files(path)
    if not files:
        raise SourceError(f"init: {str(path)!r} holds no files; pass a place with events")
    layout, keys = layout_of(files, given)
    files = files if given else [file for file in files if ending(file) in (layout.format, None)]
    names = [str(file) for file in files]
    kinds = scanned(names, layout, None)
    if not kinds:
        raise SourceError(_NOTHING)
    columns_found = {**dict.fromkeys(kinds, pa.string()), **chosen_types(kinds, layout.format, list(kinds))}
    types = leaf_types(columns_found)
    if layout.format == "text":
        types = _types_of_texts(names[0], layout, types)
    if key in types:
        types |= chosen_types(kinds, layout.format, [key], identity=frozenset({key}))
    first = next(iter(types))
    everything = EventColumns(first, first, None, None, tuple(types), types)
    batches: list[pa.Table] = []
    size, whole = 0, True
    for file in names:
        if size >= most_bytes:
            whole = False
            break
        rows, whole = _decoded(decode(file, file, layout, everything), most_bytes - size)
        batches.append(rows)
        size += rows.nbytes
    root = path if path.is_dir() else path.parent
    source = {"kind": "files", "path": str(root), "format": layout.format, **keys}
    sample = _sample(name_from(path.name), source, types, batches, "a batch for each file", whole=whole)
    return replace(sample, numbers=numbers_in(names[0], names[0], types, layout)) if layout.format == "json" else sample


def _types_of_texts(file: str, layout: Layout, texts: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Return the types of the groups of a pattern, by the first rows that match."""
    columns = EventColumns(next(iter(texts)), None, None, None, tuple(texts), texts)
    first = next(decode(file, file, layout, columns, few=True), None)
    found = {} if first is None else types_of(text_types(first.table))
    return {name: found.get(name) or kind for name, kind in texts.items()}


def _decoded(parts: Iterator[Decoded], most_bytes: int) -> tuple[pa.Table, bool]:
    """Return a file's rows, null for a missing or wrong value, and whether this was the whole file."""
    tables: list[pa.Table] = []
    size = 0
    for part in parts:
        tables.append(part.table)
        size += part.table.nbytes
        if size >= most_bytes:
            return pa.concat_tables(tables), False
    return (pa.concat_tables(tables) if tables else pa.table({})), True


def _sample(
    name: str, source: dict[str, Any], types: dict[str, pa.DataType], parts: list[pa.Table], cut: str, *, whole: bool
) -> Sample:
    """Return a sample of the non-empty parts; a single part is cut, for its own bounds say nothing about a stream's."""
    batches = [part for part in parts if part.num_rows]
    if not batches:
        raise SourceError(_NOTHING)
    if len(batches) == 1:
        rows = batches[0]
        step = max(1, -(-rows.num_rows // SLICES))
        batches = [rows.slice(start, step) for start in range(0, rows.num_rows, step)]
        cut = f"in {len(batches)} equal batches"
    return Sample(name, source, types, batches, cut, whole=whole)


def _files(root: Path) -> list[Path]:
    """Return the files that a stream would read, in its order: by time of modification."""
    hidden: Callable[[Path], bool] = lambda file: any(p.startswith((".", "_")) for p in file.relative_to(root).parts)  # noqa: E731
    files = [(file.stat().st_mtime_ns, file) for file in root.rglob("*") if file.is_file() and not hidden(file)]
    return [file for _, file in sorted(files)]


def name_from(text: str) -> str:
    """Return a name for a pipeline, made of a file's or a topic's."""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "_", text.split(".", maxsplit=1)[0]).strip("_-")
    return stem if re.match(r"[A-Za-z_]", stem) else f"events_{stem}".rstrip("_")
