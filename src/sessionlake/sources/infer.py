"""Column names and types of existing files."""

import enum
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sessionlake.column_names import DEPTH, name_of, names_of, parts_of, roots_of
from sessionlake.columnar.column_types import type_named
from sessionlake.config.layouts import Format, Layout
from sessionlake.config.source import SourceSection
from sessionlake.errors import MissingColumnsError, SourceError
from sessionlake.sources.columns import TIMESTAMP
from sessionlake.sources.decoding.csv_records import Records
from sessionlake.sources.decoding.csv_rows import read_text, with_header
from sessionlake.sources.decoding.documents import BrokenError, document
from sessionlake.sources.decoding.json_lines import json_lines
from sessionlake.sources.decoding.json_rows import SPECIAL_DOUBLES, parse_object, written
from sessionlake.sources.decoding.lines import Lines, index_values
from sessionlake.sources.decoding.long_lines import LongLine
from sessionlake.sources.decoding.parquet_rows import open_parquet
from sessionlake.sources.decoding.text_rows import columns_of

# Text is looked at only this far into each file.
SAMPLE_BYTES = 4 << 20
# A line that is too long is read past, and may have no end.
_MOST_BLOCKS = 64
_WHOLE_TEXT = r"^-?(0|[1-9]\d*)$"
_DOUBLE_TEXT = r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$"
_BOOL_TEXT = r"^(true|false|True|False|TRUE|FALSE)$"
_TWO_53, _TWO_63 = 2**53, 2**63
_EXACT_LENGTH = 15
"""A number of so few characters is given back by the double nearest to it."""
_log = logging.getLogger(__name__)


class Trait(enum.Enum):
    """A property of a column's values besides types."""

    WIDE = "whole numbers that not every double can be"
    BEYOND = "whole numbers of more than 64 bits"
    SPELLED = "values that differ in their texts and are equal by their type, as 1.10 and 1.1"
    STORED = "values that have a type in the file, so that they have no other text"
    SPECIAL = "texts that stand for a double, as NaN"


@dataclass(frozen=True)
class Fields:
    """Values with fields, by name."""

    fields: tuple[tuple[str, "Kinds"], ...]


@dataclass(frozen=True)
class Items:
    """Values that are lists, of items of these kinds."""

    items: "Kinds"


Kinds = frozenset[pa.DataType | Trait | Fields | Items]
"""The types of a column's values, and their traits; empty for a column without values."""
InferredTypes = dict[str, Kinds]
_NO_KINDS: Kinds = frozenset()
_BOOL: Kinds = frozenset({pa.bool_()})
_TEXT: Kinds = frozenset({pa.string()})
_LONG: Kinds = frozenset({pa.int64()})
_WIDE: Kinds = frozenset({pa.int64(), Trait.WIDE})
_BEYOND: Kinds = frozenset({Trait.BEYOND})
_DOUBLE: Kinds = frozenset({pa.float64()})
_SPELLED_DOUBLE: Kinds = frozenset({pa.float64(), Trait.SPELLED})
_SPECIAL: Kinds = frozenset({Trait.SPECIAL})


def infer_types(
    paths: list[str],
    form: Layout | Format,
    needed: Sequence[str],
    max_files: int = 32,
    *,
    identity: AbstractSet[str] = frozenset(),
    at: str = "source",
) -> dict[str, pa.DataType]:
    """Infer the types of the needed columns from up to `max_files` local files, spread evenly.

    Whole numbers are int64, numbers float64, times in text stay strings; Parquet keeps decimals, dates
    and timestamps (as microseconds in UTC). int64 and float64 make float64, other conflicts string.
    Whole numbers are never rounded: of more than 64 bits they are strings; if some are beyond 2 ** 53, and
    others have a fraction, all are strings, in Parquet int64. The columns in `identity` (of keys, ids and comparisons)
    never make two different values equal: if their texts in JSON or CSV would be, they are strings,
    with a warning that names `at`. A column that is null throughout is left out.
    Raises SourceError when a needed column is in no file, or no file can be read.
    """
    layout = Layout.of(form)
    found = _scan(paths, layout, max_files, set(needed))
    return chosen_types(found, layout.format, needed, identity=identity, at=at)


def chosen_types(
    found: InferredTypes,
    format: Format,  # noqa: A002
    needed: Sequence[str],
    *,
    identity: AbstractSet[str] = frozenset(),
    at: str = "source",
) -> dict[str, pa.DataType]:
    """Return the types of the needed columns among those found; errors and warnings as of `infer_types`."""
    kinds = kinds_of(found, needed)
    missing = [name for name in needed if name not in kinds]
    if missing:
        raise MissingColumnsError(
            f"no column {', '.join(repr(name) for name in missing)} in the {format} files: "
            f"write one of {', '.join(found) or 'none'}",
            missing,
            list(found),
        )
    types = types_of(kinds, identity, at)
    return {name: kind for name, kind in types.items() if kind is not None}


def kinds_of(found: InferredTypes, names: Iterable[str]) -> InferredTypes:
    """Return the kinds of columns and fields among the columns that were found; names that are not there are left out."""
    kinds: InferredTypes = {}
    for name in names:
        first, *inner = parts_of(name)
        reached = found.get(name_of([first]))
        for part in inner:
            reached = None if reached is None else _field(reached, part)
        if reached is not None:
            kinds[name] = reached
    return kinds


def _field(kinds: Kinds, name: str) -> Kinds | None:
    """Return the kinds of a field; None if no value has it."""
    found = [of for kind in kinds if isinstance(kind, Fields) for known, of in kind.fields if known == name]
    return _NO_KINDS.union(*found) if found else None


def types_of(
    found: InferredTypes, identity: AbstractSet[str] = frozenset(), at: str = "source"
) -> dict[str, pa.DataType | None]:
    """Return each column's type, None for a column without values; see `infer_types`."""
    types = {}
    for name, kinds in found.items():
        types[name] = _type_of(kinds, is_identity=name in identity)
        plain = _type_of(kinds, is_identity=False)
        if types[name] == pa.string() and plain != pa.string() and plain is not None:
            _log.warning(
                "sessionlake: warning: %s.types: %r is read as text, because its values identify events, and as %s some different ones "
                'would be equal; write %r = "string", or another type',
                at,
                name,
                "true or false" if plain == pa.bool_() else "doubles",
                name,
            )
    return types


def infer_values(values: Sequence[bytes]) -> InferredTypes:
    """Infer the columns of JSON values by the same rules; values that are no objects are passed over."""
    types: InferredTypes = {}
    _add_objects(index_values(pa.array(values, pa.binary())), types, None)
    return types


def scanned(paths: list[str], form: Layout | Format, needed: AbstractSet[str] | None) -> InferredTypes:
    """Return all columns of up to 32 files, with types of the needed columns, None for all; SourceError as infer_types."""
    return _scan(paths, Layout.of(form), 32, needed)


def _scan(paths: list[str], layout: Layout, max_files: int, needed: AbstractSet[str] | None) -> InferredTypes:
    """Return all columns of the files, with types of the needed columns; None for all."""
    scanners: dict[str, Callable[[str, Layout, AbstractSet[str] | None], InferredTypes]] = {
        "json": _json,
        "csv": _csv,
        "parquet": _parquet,
        "text": _text,
    }
    if layout.format not in scanners:
        raise SourceError(f"unknown format {layout.format!r}: write json, csv or parquet, or text for logs")
    if needed is not None:
        needed = {*names_of(roots_of([*needed]))}
    types: InferredTypes = {}
    failure = "there are no files"
    readable = False
    for path in _spread(paths, max_files):
        try:
            for name, kind in scanners[layout.format](path, layout, needed).items():
                types[name] = types.get(name, _NO_KINDS) | kind
            readable = True
        except (OSError, pa.ArrowException, SourceError) as error:
            failure = f"{path}: {error}"
    if not readable:
        raise SourceError(f"no readable {layout.format} file ({failure}): check the source's path and format")
    return types


def _spread(paths: list[str], most: int) -> Iterator[str]:
    step = max(1, -(-len(paths) // most))
    yield from paths[::step]


def _type_of(kinds: Kinds, *, is_identity: bool) -> pa.DataType | None:
    types = {kind for kind in kinds if isinstance(kind, pa.DataType)}
    traits = {kind for kind in kinds if isinstance(kind, Trait)}
    nested = kinds - types - traits
    if nested or not kinds:
        return _nested_type(nested, is_identity=is_identity) if len(nested) == len(kinds) else pa.string()
    if Trait.BEYOND in traits or (is_identity and Trait.SPELLED in traits):
        return pa.string()
    if Trait.SPECIAL in traits:
        types.add(pa.float64() if types and types <= {pa.int64(), pa.float64()} else pa.string())
    if types == {pa.int64(), pa.float64()}:
        if not is_identity and Trait.WIDE not in traits:
            return pa.float64()
        return pa.int64() if Trait.STORED in traits else pa.string()
    if types == {pa.date32(), TIMESTAMP}:
        return TIMESTAMP
    return _one_type(types)


def _nested_type(kinds: Kinds, *, is_identity: bool) -> pa.DataType | None:
    """Return a type for lists, or for values with fields; text for both, None for no kinds. A field or item without values is text."""
    if not kinds:
        return None
    if all(isinstance(kind, Items) for kind in kinds):
        items = _NO_KINDS.union(*(kind.items for kind in kinds if isinstance(kind, Items)))
        return pa.list_(_type_of(items, is_identity=is_identity) or pa.string())
    if any(isinstance(kind, Items) for kind in kinds):
        return pa.string()
    names = dict.fromkeys(name for kind in kinds if isinstance(kind, Fields) for name, _ in kind.fields)
    types = {name: _type_of(_field(kinds, name) or _NO_KINDS, is_identity=is_identity) or pa.string() for name in names}
    return pa.struct(list(types.items()))


def _one_type(types: AbstractSet[pa.DataType]) -> pa.DataType:
    """Return a type for all values; decimals and whole numbers make a decimal."""
    if len(types) == 1:
        return next(iter(types))
    decimals = [pa.decimal128(19, 0) if kind == pa.int64() else kind for kind in types]
    if not all(map(pa.types.is_decimal, decimals)):
        return pa.string()
    scale = max(kind.scale for kind in decimals)
    whole = max(kind.precision - kind.scale for kind in decimals)
    return pa.decimal128(min(38, whole + scale), scale)


def _json(path: str, layout: Layout, needed: AbstractSet[str] | None) -> InferredTypes:
    types: InferredTypes = {}
    lines_read = bytes_read = objects = 0
    for lines in _json_rows(path, layout):
        if isinstance(lines, LongLine):
            continue
        objects += _add_objects(lines, types, needed)
        lines_read += len(lines)
        bytes_read += len(lines.block)
        if bytes_read >= SAMPLE_BYTES // 2:
            break
    if lines_read and not objects:
        raise OSError(f"no {'element' if layout.records else 'line'} is a JSON object")
    return types


def _json_rows(path: str, layout: Layout) -> Iterator[Lines | LongLine]:
    """Yield the rows before a break; OSError if a document has none before it."""
    if not layout.records:
        yield from json_lines(path, path, SAMPLE_BYTES, most_blocks=_MOST_BLOCKS)
        return
    found = document(path, path, layout, SAMPLE_BYTES)
    try:
        yield from found.elements()
    except BrokenError as error:
        if not found.number:
            raise OSError(error) from error


def _add_objects(lines: Lines, found: InferredTypes, needed: AbstractSet[str] | None) -> int:
    """Add the names in the lines that are objects, with the types of the needed names (None: all); return the number of objects."""
    objects = 0
    for row in range(len(lines)):
        try:
            values = parse_object(lines.content(row))
        except ValueError:
            continue
        objects += 1
        for column, value in values.items():
            name = name_of([column])
            kinds = _json_kinds(value) if needed is None or name in needed else _NO_KINDS
            before = found.get(name)
            if before is None or not kinds <= before:
                found[name] = kinds if before is None else before | kinds
    return objects


def _json_kinds(value: object, depth: int = 1) -> Kinds:
    if value is None:
        return _NO_KINDS
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, int):
        return _whole_kinds(value)
    if isinstance(value, Decimal):
        return _double_kinds(value)
    if isinstance(value, float):
        return _DOUBLE
    return _text_kind(value) if isinstance(value, str) else _kinds_within(value, depth)


def _kinds_within(value: object, depth: int) -> Kinds:
    """Return the kinds of an object or a list; what lies too deep to be read counts as empty."""
    inside = depth < DEPTH
    if isinstance(value, dict):
        fields = value.items() if inside else ()
        return frozenset({Fields(tuple((name, _json_kinds(inner, depth + 1)) for name, inner in fields))})
    if not isinstance(value, list):
        return _TEXT
    return frozenset({Items(_NO_KINDS.union(*(_json_kinds(inner, depth + 1) for inner in value if inside)))})


def _text_kind(value: str) -> Kinds:
    return _SPECIAL if value in SPECIAL_DOUBLES else _TEXT


def _whole_kinds(value: int) -> Kinds:
    size = value if value >= 0 else -value - 1  # the least number of 64 bits has no opposite
    if size < _TWO_53:
        return _LONG
    return _WIDE if size < _TWO_63 else _BEYOND


def _double_kinds(value: Decimal) -> Kinds:
    text = written(value)
    if text == "-0":
        return _LONG
    exact = len(text) <= _EXACT_LENGTH or Decimal(repr(float(value))) == value
    return _DOUBLE if exact else _SPELLED_DOUBLE


def _csv(path: str, layout: Layout, needed: AbstractSet[str] | None) -> InferredTypes:
    header: list[str] = []
    for names, records in with_header(path, path, layout, SAMPLE_BYTES):
        header = names
        wanted = [name for name in header if needed is None or name_of([name]) in needed]
        if not wanted:
            break
        if isinstance(records, Records) and records.content and not records.unclosed:
            table, _ = read_text(header, records.content, wanted, layout)
            return {**dict.fromkeys(names_of(header), _NO_KINDS), **text_types(table)}
    return dict.fromkeys(names_of(header), _NO_KINDS)


def _text(path: str, layout: Layout, needed: AbstractSet[str] | None) -> InferredTypes:
    """Return the groups of the pattern, all of which are texts."""
    del path, needed
    return dict.fromkeys(columns_of(layout.pattern), _TEXT)


def text_types(table: pa.Table) -> InferredTypes:
    """Return the types of columns of texts."""
    return {name_of([name]): _text_kinds(table.column(name).drop_null()) for name in table.column_names}


def _text_kinds(values: pa.ChunkedArray) -> Kinds:
    if not len(values):
        return _NO_KINDS
    if _all_match(values, _BOOL_TEXT):
        return frozenset({pa.bool_(), Trait.SPELLED})
    special = pc.is_in(values, pa.array(SPECIAL_DOUBLES))
    numbers = values.filter(pc.invert(special))
    kinds = _SPECIAL if len(numbers) < len(values) else _NO_KINDS
    whole = pc.match_substring_regex(numbers, _WHOLE_TEXT)
    kinds |= _whole_texts(numbers.filter(whole))
    others = numbers.filter(pc.invert(whole))
    if not len(others):
        return kinds
    if not _all_match(others, _DOUBLE_TEXT) or pc.any(pc.is_inf(others.cast(pa.float64()))).as_py():
        return _TEXT
    return kinds | _SPELLED_DOUBLE


def _all_match(values: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())


def _whole_texts(values: pa.ChunkedArray) -> Kinds:
    if not len(values):
        return _NO_KINDS
    try:
        numbers = values.cast(pa.int64())
    except pa.ArrowInvalid:
        return _BEYOND
    bounds = pc.min_max(numbers)
    return _whole_kinds(bounds["min"].as_py()) | _whole_kinds(bounds["max"].as_py())


def _parquet(path: str, layout: Layout, needed: AbstractSet[str] | None) -> InferredTypes:
    del layout
    with open_parquet(path) as file:
        return {
            name: _parquet_kinds(column.type, (column.name,), file if needed is None or name in needed else None)
            for column in file.schema_arrow
            for name in names_of([column.name])
        }


def _bounds(file: pq.ParquetFile, parts: Sequence[str]) -> Kinds:
    """Say whether a column of whole numbers has some beyond doubles' exact range, by the file's statistics."""
    path, schema = ".".join(parts), file.metadata.schema
    at = next((at for at in range(file.metadata.num_columns) if schema.column(at).path == path), None)
    groups = range(0 if at is None else file.metadata.num_row_groups)
    group_stats = [file.metadata.row_group(group).column(at).statistics for group in groups]
    bounds = [
        bound
        for group_statistics in group_stats
        if group_statistics is not None and group_statistics.has_min_max
        for bound in (group_statistics.min, group_statistics.max)
    ]
    return _NO_KINDS.union(*(_whole_kinds(bound) for bound in bounds if isinstance(bound, int)))


def _parquet_kinds(kind: pa.DataType, parts: tuple[str, ...], file: pq.ParquetFile | None) -> Kinds:
    """Return the kinds of a column or field; the bounds of whole numbers are looked up in `file`, if it is given."""
    if pa.types.is_nested(kind):
        return _nested_parquet_kinds(kind, parts, file)
    if pa.types.is_integer(kind):
        return _LONG | {Trait.STORED} | (_NO_KINDS if file is None else _bounds(file, parts))
    return _plain_parquet_kinds(kind)


def _nested_parquet_kinds(kind: pa.DataType, parts: tuple[str, ...], file: pq.ParquetFile | None) -> Kinds:
    if pa.types.is_struct(kind):
        return frozenset({Fields(tuple((f.name, _parquet_kinds(f.type, (*parts, f.name), file)) for f in kind))})
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return frozenset({Items(_parquet_kinds(kind.value_type, parts, None))})
    return frozenset({kind})


def _plain_parquet_kinds(kind: pa.DataType) -> Kinds:
    if pa.types.is_null(kind):
        return _NO_KINDS
    if pa.types.is_floating(kind):
        return _DOUBLE | {Trait.STORED}
    if pa.types.is_timestamp(kind):
        return frozenset({TIMESTAMP})
    if pa.types.is_date(kind):
        return frozenset({pa.date32()})
    return frozenset({kind if pa.types.is_boolean(kind) or pa.types.is_decimal128(kind) else pa.string()})


def declared_and_inferred(
    source: SourceSection,
    needed: Sequence[str],
    find: Callable[[list[str]], Mapping[str, pa.DataType]],
    fixed: Mapping[str, pa.DataType] = MappingProxyType({}),
) -> dict[str, pa.DataType]:
    """Return the types of columns: as the config declares them, as they are fixed, or as `find` finds the others; else text."""
    declared = {**{name: type_named(text) for name, text in source.types.items()}, **fixed}
    to_find = [name for name in needed if name not in declared]
    try:
        inferred = find(to_find) if to_find else {}
    except MissingColumnsError as error:
        raise MissingColumnsError(
            f"{source.AT}.path: {source.path!r}: {error}" if source.path else str(error),
            error.missing,
            list(dict.fromkeys((*error.known, *declared))),
        ) from error
    except SourceError as error:
        where = "" if "source." in str(error) else f"{source.AT}.path: {source.path!r}: "
        raise SourceError(f"{where}{error}") from error
    return {**dict.fromkeys(needed, pa.string()), **inferred, **{n: t for n, t in declared.items() if n in needed}}
