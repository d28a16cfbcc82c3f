"""Column names and types of the files that exist."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.config.source import Format, SourceSection
from sessionlake.errors import MissingColumnsError, SourceError
from sessionlake.sources.columns import TIMESTAMP
from sessionlake.sources.decoding.csv_records import Records
from sessionlake.sources.decoding.csv_rows import read_text, with_header
from sessionlake.sources.decoding.json_lines import json_lines
from sessionlake.sources.decoding.json_rows import parse_object
from sessionlake.sources.decoding.lines import Lines, index_values
from sessionlake.sources.decoding.long_lines import LongLine
from sessionlake.sources.decoding.parquet_rows import open_parquet
from sessionlake.warehouse import schemas

# Text is looked at only this far into each file.
SAMPLE_BYTES = 4 << 20
_LONG_TEXT = r"^-?(0|[1-9]\d{0,17})$"
_DOUBLE_TEXT = r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$"
_BOOL_TEXT = r"^(true|false|True|False|TRUE|FALSE)$"

InferredTypes = dict[str, pa.DataType | None]
"""The columns of a file, None for one without any value."""


def infer_types(
    paths: list[str],
    format: Format,  # noqa: A002
    needed: Sequence[str],
    max_files: int = 32,
) -> dict[str, pa.DataType]:
    """Infer the types of the needed columns from up to `max_files` local files, spread evenly.

    Whole numbers are int64, numbers float64, times in text stay strings; Parquet keeps decimals, dates
    and timestamps (as microseconds in UTC). int64 and float64 make float64, other conflicts string.
    A column that is null throughout is left out. Raises SourceError when a needed column is in no
    file, or no file can be read.
    """
    found = _scan(paths, format, max_files, set(needed))
    missing = [name for name in needed if name not in found]
    if missing:
        raise MissingColumnsError(
            f"no column {', '.join(repr(name) for name in missing)} in the {format} files: "
            f"write one of {', '.join(found) or 'none'}",
            missing,
            list(found),
        )
    kinds = {name: found[name] for name in needed}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def infer_values(values: Sequence[bytes]) -> InferredTypes:
    """Infer the columns of JSON values by the same rules; those that are no objects are passed over."""
    found: InferredTypes = {}
    _add_objects(index_values(pa.array(values, pa.binary())), found, None)
    return found


def all_columns(paths: list[str], format: Format) -> list[str]:  # noqa: A002
    """List the columns of up to 32 of the files, in order of first appearance; SourceError as infer_types."""
    return list(_scan(paths, format, 32, set()))


def _scan(paths: list[str], file_format: Format, max_files: int, needed: AbstractSet[str]) -> InferredTypes:
    """Return all columns of the files, with the types of the needed ones."""
    scanners: dict[str, Callable[[str, AbstractSet[str]], InferredTypes]] = {
        "json": _json,
        "csv": _csv,
        "parquet": _parquet,
    }
    if file_format not in scanners:
        raise SourceError(f"unknown format {file_format!r}: write json, csv or parquet")
    found: InferredTypes = {}
    failure = "there are no files"
    readable = False
    for path in _spread(paths, max_files):
        try:
            for name, kind in scanners[file_format](path, needed).items():
                found[name] = _unify(found.get(name), kind)
            readable = True
        except (OSError, pa.ArrowException, SourceError) as error:
            failure = f"{path}: {error}"
    if not readable:
        raise SourceError(f"no readable {file_format} file ({failure}): check the source's path and format")
    return found


def _spread(paths: list[str], most: int) -> Iterator[str]:
    step = max(1, -(-len(paths) // most))
    yield from paths[::step]


def _unify(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one is None or other is None or one == other:
        return other if one is None else one
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        scale = max(one.scale, other.scale)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        return pa.decimal128(min(38, whole + scale), scale)
    return pa.string()


def _json(path: str, needed: AbstractSet[str]) -> InferredTypes:
    found: InferredTypes = {}
    lines_read = bytes_read = objects = 0
    for lines in json_lines(path, path, SAMPLE_BYTES):
        if isinstance(lines, LongLine):
            continue
        objects += _add_objects(lines, found, needed)
        lines_read += len(lines)
        bytes_read += len(lines.block)
        if bytes_read >= SAMPLE_BYTES // 2:
            break
    if lines_read and not objects:
        raise OSError("no line is a JSON object")
    return found


def _add_objects(lines: Lines, found: InferredTypes, needed: AbstractSet[str] | None) -> int:
    """Add the names in the lines that are objects, with the types of the needed names (None: all); return the number of objects."""
    objects = 0
    for row in range(len(lines)):
        try:
            values = parse_object(lines.content(row))
        except ValueError:
            continue
        objects += 1
        for name, value in values.items():
            kind = _json_type(value) if needed is None or name in needed else None
            if name not in found or kind != found[name]:
                found[name] = _unify(found.get(name), kind)
    return objects


def _json_type(value: object) -> pa.DataType | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64()
    return pa.string() if isinstance(value, (str, dict, list)) else pa.float64()


def _csv(path: str, needed: AbstractSet[str]) -> InferredTypes:
    header: list[str] = []
    for names, records in with_header(path, path, SAMPLE_BYTES):
        header = names
        wanted = [name for name in header if name in needed]
        if not wanted:
            break
        if isinstance(records, Records) and records.content and not records.unclosed:
            table, _ = read_text(header, records.content, wanted)
            return {**dict.fromkeys(header), **_text_types(table)}
    return dict.fromkeys(header)


def _text_types(table: pa.Table) -> InferredTypes:
    return {name: _text_type(table.column(name).drop_null()) for name in table.column_names}


def _text_type(values: pa.ChunkedArray) -> pa.DataType | None:
    if not len(values):
        return None
    kinds = ((_LONG_TEXT, pa.int64()), (_DOUBLE_TEXT, pa.float64()), (_BOOL_TEXT, pa.bool_()))
    for pattern, kind in kinds:
        if pc.all(pc.match_substring_regex(values, pattern)).as_py():
            return kind
    return pa.string()


def _parquet(path: str, needed: AbstractSet[str]) -> InferredTypes:
    del needed  # the file's schema names them all
    with open_parquet(path) as file:
        return {column.name: _parquet_type(column.type) for column in file.schema_arrow}


def _parquet_type(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_null(kind):
        return None
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_date(kind):
        return pa.date32()
    return kind if pa.types.is_boolean(kind) or pa.types.is_decimal128(kind) else pa.string()


def declared_and_inferred(
    source: SourceSection,
    needed: Sequence[str],
    find: Callable[[list[str]], Mapping[str, pa.DataType]],
    fixed: Mapping[str, pa.DataType] = MappingProxyType({}),
) -> dict[str, pa.DataType]:
    """Return the types of columns: as the config declares them, as they are fixed, or as `find` finds the others; else text."""
    declared = {**{name: schemas.COLUMN_TYPES[text] for name, text in source.types.items()}, **fixed}
    to_find = [name for name in needed if name not in declared]
    try:
        found = find(to_find) if to_find else {}
    except MissingColumnsError as error:
        raise MissingColumnsError(
            f"{source.AT}.path: {source.path!r}: {error}" if source.path else str(error),
            error.missing,
            list(dict.fromkeys((*error.known, *declared))),
        ) from error
    except SourceError as error:
        where = "" if "source." in str(error) else f"{source.AT}.path: {source.path!r}: "
        raise SourceError(f"{where}{error}") from error
    return {**dict.fromkeys(needed, pa.string()), **found, **{n: t for n, t in declared.items() if n in needed}}
