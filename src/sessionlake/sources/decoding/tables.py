"""Rows that are columns already: a Delta table's, or another pipeline's results, some of them added and others taken back."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decoded import plain
from sessionlake.sources.decoding.nested import as_object
from sessionlake.sources.decoding.rows import BATCH, Origin, Rows, no_text, rank_of, raw_text
from sessionlake.sources.decoding.whole import text_rows
from sessionlake.warehouse.changelog import SIGN

FILE, BLOCK = "_file", "_block"
"""Columns of a stream whose rows are numbered in order: the name of a row's file, and the byte of the file at which its task
began to read."""
WHOLE = "_whole"
"""The column of a stream whose rows are kept whole: a struct of all columns."""


@dataclass(frozen=True)
class TableDecoder:
    """Take rows as they are; see `Decoder` for the methods."""

    columns: EventColumns
    place: str | None
    """The rows' origin in dead letters: the table. A stream of a table has no finer origin."""

    def part(self, table: pa.Table) -> tuple[pa.Table, None]:
        """Return all: a table sends no corrections."""
        return table, None

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the rows; their text is a JSON object of the columns read."""
        yield self._rows(table, None)

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Yield the rows of each file, ordered by the file's rank, and within it as they stand: a task reads on in a file."""
        rows = table.drop_columns([FILE, BLOCK])
        name, block = combined(table[FILE]).dictionary_encode(), combined(table[BLOCK]).to_numpy()
        codes = name.indices.to_numpy()
        new = np.ones(len(codes), bool)
        new[1:] = (codes[1:] != codes[:-1]) | (block[1:] != block[:-1])
        starts = np.flatnonzero(new)
        for first, end in itertools.pairwise([*starts.tolist(), len(codes)]):
            rank = rank_of(files, name.dictionary[int(codes[first])].as_py())
            some = rows.slice(first, end - first).combine_chunks()
            yield self._rows(some, Origin(0, (rank, int(block[first]), part)))

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Yield the rows of each batch."""
        batch = table[BATCH].to_numpy()
        events = table.drop_columns([BATCH])
        for batch_id in np.unique(batch).tolist():
            some = events.filter(pa.array(batch == batch_id)).combine_chunks()
            yield batch_id, Rows(some, None, no_text, no_text)

    def _rows(self, read: pa.Table, origin: Origin | None) -> Rows:
        table, whole = read, None
        if WHOLE in read.column_names:
            table, every = read.drop_columns([WHOLE]), combined(read[WHOLE])
            whole = lambda at: text_rows(pa.Table.from_struct_array(every.take(pa.array(at))))  # noqa: E731
        return Rows(
            table=table,
            error=None,
            raw=lambda at: text_of_rows(table.take(pa.array(at))),
            source=lambda at: pa.repeat(pa.scalar(self.place, pa.string()), len(at)),
            origin=origin,
            whole=whole,
        )


def text_of_rows(table: pa.Table) -> pa.Array:
    """Return each row as a JSON object of its columns, cut if it is long. `redeem` reads these texts, so no digit of a number may be lost.

    >>> text_of_rows(pa.table({"id": [1588987262754234369, None]})).to_pylist()
    ['{"id":1588987262754234369}', '{"id":null}']
    """
    return pa.array(map(raw_text, json_of_rows(table)), pa.string())


def json_of_rows(table: pa.Table) -> Iterator[bytes]:
    """Yield each row as a JSON object of its columns."""
    columns = [_json_values(combined(column)) for column in table.columns]
    for row in zip(*columns, strict=True):
        values = as_object(dict(zip(table.column_names, row, strict=True)))
        yield json.dumps(values, default=_text, separators=(",", ":")).encode()


def _json_values(column: pa.Array) -> list[object]:
    """Return values as JSON has them; those for which it has no form as texts from which a cast makes them again."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        naive = column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64()).cast(pa.timestamp("us"))
        texts = pc.strftime(naive, format="%Y-%m-%dT%H:%M:%S")
        return list((pc.binary_join_element_wise(texts, "Z", "") if kind.tz else texts).to_pylist())
    if pa.types.is_date32(kind) or pa.types.is_decimal(kind):
        return list(column.cast(pa.string()).to_pylist())
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [plain(value) for value in column]


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


PART = "_part"
"""The column of rows in order that says in which part of the order a row is; within a part they stand in order."""


@dataclass(frozen=True)
class SignedDecoder(TableDecoder):
    """Take rows as they are, each with its sign; see `Decoder` for the methods."""

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the rows."""
        yield self._signed(table, None)

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Yield the rows of each part."""
        del files
        at = combined(table[PART]).to_numpy()
        rows = table.drop_columns([PART])
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        for first, end in zip(starts.tolist(), [*starts[1:].tolist(), len(at)], strict=True):
            yield self._signed(rows.slice(first, end - first).combine_chunks(), Origin(0, (int(at[first]), 0, part)))

    def _signed(self, table: pa.Table, origin: Origin | None) -> Rows:
        sign = combined(table[SIGN]).to_numpy().astype(np.int64)
        rows = self._rows(table.drop_columns([SIGN]), origin)

        def raw(at: Ints) -> pa.Array:
            # The other pipeline may take a row back to forget a person.
            return pc.if_else(pa.array(sign[at] < 0), None, rows.raw(at))

        return replace(rows, raw=raw, sign=sign)
