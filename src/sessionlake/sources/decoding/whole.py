"""Rows of a source with all their columns, as the archive keeps them if `pipeline.archive` is "all" (docs/rules.md, rule 245)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.column_names import parts_of
from sessionlake.columnar.arrays import Ints
from sessionlake.errors import SourceError
from sessionlake.sources.decoding.safe_cast import TEXTS, cast_each, nulls_of, without_dictionary
from sessionlake.warehouse import schemas

Whole = Callable[[Ints], pa.Table]
"""Returns the rows at some places, ascending, with the columns of SCHEMA."""
JSON, TEXTS_OF_COLUMNS = "json", "texts"
"""The kinds of rows: the JSON object as it came; a JSON object that has a text for each column that is not null."""
KIND, RAW, RECORD = "kind", "raw", "record"
SCHEMA = pa.schema([(name, schemas.SOURCE_ROWS_SCHEMA.field(name).type) for name in (KIND, RAW, RECORD)])
_ODD = r'["\\\x00-\x1f]'
_QUOTE, _BACKSLASH, _FIRST_PRINTABLE = b'"\\ '
_ESCAPES = [("\\", "\\\\"), ('"', '\\"'), *((chr(code), f"\\u{code:04x}") for code in range(32))]
"""The characters that can't stand in a JSON string as they are; the backslash first, because the others bring more."""
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())


def is_kept(type_: pa.DataType) -> bool:
    """Say whether whole rows have columns of a type: types that a config can name, so no lists, maps and structs."""
    return not pa.types.is_nested(type_)


def json_rows(texts: pa.Array, record: pa.Array | None = None) -> pa.Table:
    """Return rows that came as JSON; of a topic `record` has key, time and place of each."""
    n = len(texts)
    record = pa.nulls(n, SCHEMA.field(RECORD).type) if record is None else record
    return pa.Table.from_arrays([pa.repeat(JSON, n), texts.cast(pa.string()), record], schema=SCHEMA)


def text_rows(table: pa.Table) -> pa.Table:
    """Return rows of columns: a text of each value, from which a cast makes the value again.

    SourceError for bytes that are not UTF-8, because JSON has no bytes.

    >>> text_rows(pa.table({"user": ["ann"], "price": [0.1], "note": [None]}))["raw"].to_pylist()
    ['{"user":"ann","price":"0.1"}']
    """
    texts = {
        _escaped(pa.array([stored_name(field.name)]))[0].as_py(): _escaped(
            _texts(field.name, without_dictionary(table[field.name]))
        )
        for field in table.schema
        if is_kept(field.type)
    }
    n = table.num_rows
    record = pa.nulls(n, SCHEMA.field(RECORD).type)
    return pa.Table.from_arrays([pa.repeat(TEXTS_OF_COLUMNS, n), _objects(texts, n), record], schema=SCHEMA)


def stored_name(name: str) -> str:
    """Return how whole rows of columns call a column or field: without backquotes."""
    return ".".join(parts_of(name))


def _objects(texts: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Return a JSON object for each row, without the columns that are null in it. Columns without nulls come first."""
    whole = [name for name, values in texts.items() if not values.null_count]
    others = [name for name in texts if name not in whole]
    # Each join copies all that it joins. So there is a join for all columns without nulls, and another for each further column.
    pieces: list[Any] = []
    for name in whole:
        pieces += [f'{"," if pieces else "{"}"{name}":"', texts[name], '"']
    more = [pc.fill_null(pc.binary_join_element_wise(f',"{name}":"', texts[name], '"', ""), "") for name in others]
    if whole:
        return pc.binary_join_element_wise(*pieces, *more, "}", "")
    # Each row's first pair has no comma before it.
    pairs = pc.binary_join_element_wise(*more, "", "") if more else pa.repeat("", rows)
    return pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(pairs, 1), "}", "")


def _texts(name: str, values: pa.Array) -> pa.Array:
    """Return each value as text; a string outside of UTF-8 becomes null, as an unreadable value."""
    if values.type in _BYTES:
        texts = cast_each(values, pa.string())
        if texts.null_count > values.null_count:
            raise SourceError(
                f"pipeline.archive: column {name!r} has bytes that are no text, and whole rows are kept as text; write true in place of 'all'"
            )
        return texts
    if values.type in TEXTS or pa.types.is_string_view(values.type):
        wide = pa.large_binary() if pa.types.is_large_string(values.type) else pa.binary()
        return cast_each(values.cast(wide), pa.string())
    # A narrow float is read as a double: its own shortest text is another number.
    return cast_each(values.cast(pa.float64()) if pa.types.is_floating(values.type) else values, pa.string())


def _escaped(texts: pa.Array) -> pa.Array:
    """Return texts as they stand between the quotes of a JSON string."""
    # One look at all bytes costs a fortieth of a look at each text.
    content = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    if not ((content < _FIRST_PRINTABLE) | (content == _QUOTE) | (content == _BACKSLASH)).any():
        return texts
    odd = pc.fill_null(pc.match_substring_regex(texts, _ODD), fill_value=False)
    if not pc.any(odd).as_py():
        return texts
    some = texts.filter(odd)
    for character, escape in _ESCAPES:
        if pc.any(pc.match_substring(some, character)).as_py():
            some = pc.replace_substring(some, character, escape)
    return pc.replace_with_mask(texts, odd, some)


def slices(block: bytes, starts: Ints, ends: Ints) -> pa.Array:
    """Return adjacent pieces of a block as binary values."""
    n = len(starts)
    if not n:
        return pa.array([], pa.large_binary())
    bounds = np.empty(2 * n, np.int64)
    bounds[0::2], bounds[1::2] = starts, ends
    # Values and the gaps between them in turn: nothing is copied but the values that are taken.
    every = pa.Array.from_buffers(pa.large_binary(), 2 * n - 1, [None, pa.py_buffer(bounds), pa.py_buffer(block)])
    return every.take(pa.array(np.arange(0, 2 * n, 2)))


def readable(error: pa.Array | None, rows: int, *passed: str) -> Ints:
    """Return readable rows: rows without an error, and rows whose error begins with one of some texts."""
    if error is None or error.null_count == rows:
        return np.arange(rows)
    kept = nulls_of(error)
    for text in passed:
        kept |= pc.fill_null(pc.starts_with(error, text), fill_value=False).to_numpy(zero_copy_only=False)
    return np.flatnonzero(kept)
