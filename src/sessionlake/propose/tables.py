"""Samples of sources other than files: a Delta table, read without Spark, and a topic, read with librdkafka."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from sessionlake.column_names import names_of
from sessionlake.config.layouts import Format, Layout
from sessionlake.errors import SourceError, first_line
from sessionlake.sources.columns import EventColumns, normal_type
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.nested import flattened, leaf_types
from sessionlake.sources.infer import infer_values, kinds_of, types_of
from sessionlake.sources.topic_records import TopicReader
from sessionlake.warehouse.arrow_files import delta_files, delta_rows

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LEARNT_FROM = 10_000
_PATIENCE_S = 15.0


def read_delta(path: Path, most_bytes: int) -> tuple[dict[str, pa.DataType], list[pa.Table], bool]:
    """Return a Delta table's column types, rows up to `most_bytes` by commit, and whether this is all."""
    # Only this source needs them.
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    from sessionlake.warehouse.lake import opened  # noqa: PLC0415
    from sessionlake.warehouse.own_paths import outside_of_opened  # noqa: PLC0415

    commits: dict[int, list[pa.Table]] = {}
    size, whole = 0, True
    try:
        table = opened(str(path))
        if (found := outside_of_opened(table, str(path))) is not None:
            raise SourceError(
                f"init: {str(path)!r} names a file outside of the table, {found!r}; write the rows into the table itself, or write the config by hand"
            )
        for commit, rows in _by_commit(table, path):
            if size >= most_bytes:
                whole = False
                break
            commits.setdefault(commit, []).append(rows)
            size += rows.nbytes
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise SourceError(f"init: {str(path)!r} is no readable Delta table ({first_line(error)})") from error
    parts = [pa.concat_tables(tables) for tables in commits.values()]
    given = {
        name: type_
        for part in parts[:1]
        for name, type_ in zip(names_of(part.column_names), part.schema.types, strict=True)
    }
    types = {name: _plain(type_) for name, type_ in leaf_types(given).items()}
    return types, [_typed(part, types) for part in parts], whole


def _by_commit(table: "DeltaTable", path: Path) -> Iterator[tuple[int, pa.Table]]:
    """Yield each file's rows, by the commit that added it. Files with a commit outside of the log come first, as of commit -1."""
    from deltalake.exceptions import DeltaProtocolError  # noqa: PLC0415

    try:
        dataset = delta_files(table)
    except DeltaProtocolError:
        # This reader supports deletion vectors, but it does not say from which file a row is.
        yield from ((-1, pa.table(part)) for part in delta_rows(table))
        return
    added = _added(path)
    fragments = [(added.get(unquote(fragment.path), -1), fragment) for fragment in dataset.get_fragments()]
    for commit, fragment in sorted(fragments, key=lambda pair: pair[0]):
        yield commit, fragment.to_table(schema=dataset.schema)


def _added(path: Path) -> dict[str, int]:
    """Return the commit that added each file, for commits that the log still has singly."""
    added = {}
    for commit in sorted((path / "_delta_log").glob("*.json")):
        if commit.stem.isdigit():
            for line in commit.read_text().splitlines():
                if line.startswith('{"add"'):
                    added[unquote(json.loads(line)["add"]["path"])] = int(commit.stem)
    return added


def _typed(rows: pa.Table, types: dict[str, pa.DataType]) -> pa.Table:
    rows = flattened(rows, types)
    columns = [rows[name] if kind != pa.string() else _text(rows[name]) for name, kind in types.items()]
    return pa.table([c.cast(t) for c, t in zip(columns, types.values(), strict=True)], list(types))


def _plain(kind: pa.DataType) -> pa.DataType:
    flat = normal_type(kind)
    known = flat in (pa.int64(), pa.float64(), pa.bool_(), pa.date32()) or pa.types.is_timestamp(flat)
    return flat if known or pa.types.is_decimal(flat) else pa.string()


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return text columns as text, and null for nested values, which event columns cannot hold."""
    textual = (
        pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type)
    )
    return column if textual else pa.chunked_array([pa.nulls(len(column), pa.string())])


def numbers_in(
    source: str | bytes, path: str, types: dict[str, pa.DataType], layout: Layout | Format = "json"
) -> dict[str, float]:
    """Return text columns with numbers at the beginning of some JSON, and the share of rows with numbers."""
    texts = [name for name, kind in types.items() if kind == pa.string()]
    if not texts:
        return {}
    columns = EventColumns(texts[0], texts[0], None, None, tuple(texts), dict.fromkeys(texts, pa.float64()))
    first = next(iter(decode(source, path, layout, columns, few=True))).table
    shares = {name: 1 - first[name].null_count / max(1, first.num_rows) for name in texts}
    return {name: share for name, share in shares.items() if share}


def read_topic(
    servers: str, topic: str, most_bytes: int, key: str | None
) -> tuple[dict[str, pa.DataType], pa.Table, dict[str, float], bool]:
    """Read a topic's JSON values from its beginning.

    Return the columns' types, the rows by the records' time, the columns of text that have numbers, too (`numbers_in`), and
    whether those rows are all.
    """
    records, whole = TopicReader("init", servers, _PATIENCE_S, {}).first(topic, most_bytes)
    # JSON escapes a line break inside of a text, so an unescaped line break is white space between tokens.
    values = [record.value.replace(b"\n", b" ") for record in sorted(records, key=lambda record: record.time_ms)]
    found = infer_values(values[:_LEARNT_FROM])
    if not found:
        raise SourceError(
            f"init: topic {topic!r} has no record whose value is a JSON object; for Avro write the config by hand (docs/kafka.md)"
        )
    typed = types_of(found)
    types = leaf_types({name: kind or pa.string() for name, kind in typed.items()})
    if key in types:
        types |= {
            name: kind or pa.string() for name, kind in types_of(kinds_of(found, [key]), frozenset({key})).items()
        }
    first = next(iter(types))
    columns = EventColumns(first, first, None, None, tuple(types), types)
    lines, path = b"\n".join(values), f"{topic}.json"
    rows = pa.concat_tables([part.table for part in decode(lines, path, "json", columns)])
    return types, rows, numbers_in(lines, path, types), whole
