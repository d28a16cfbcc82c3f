"""Rows of the archive as a source: whole rows, or the events that earlier batches took, in the columns that a config reads now."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.column_names import name_of
from sessionlake.columnar.arrays import combined
from sessionlake.errors import SourceError
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decoded import typed
from sessionlake.sources.decoding.json_lines import read_lines
from sessionlake.sources.decoding.kafka_records import NULL_VALUE
from sessionlake.sources.decoding.lines import Lines, index_values
from sessionlake.sources.decoding.rows import BATCH, Rows, Texts, raw_text
from sessionlake.sources.decoding.safe_cast import nulls_of
from sessionlake.sources.decoding.tables import text_of_rows
from sessionlake.sources.decoding.whole import JSON, KIND, RAW, RECORD, SCHEMA, is_kept, stored_name
from sessionlake.sources.record_columns import HEADERS, KEY, META, NO_VALUE, OFFSET, PARTITION, TIME

ARCHIVED = "archived"
"""The column with an archived event's needed columns, as a struct, so that their names clash with no other column's."""


@dataclass(frozen=True)
class BatchesDecoder(ABC):
    """The archive decoders' common part for all of its tables, whose rows name the batch that brought them."""

    columns: EventColumns

    @abstractmethod
    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the rows."""

    def part(self, table: pa.Table) -> tuple[pa.Table, None]:
        """Return all: an archive sends no corrections."""
        return table, None

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Raise NotImplementedError: the archive does not keep row order."""
        raise NotImplementedError

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Yield the rows of each batch."""
        batch = combined(table[BATCH]).to_numpy()
        for batch_id in np.unique(batch).tolist():
            yield from ((batch_id, rows) for rows in self.decode(table.filter(pa.array(batch == batch_id))))


def places(table: pa.Table) -> Texts:
    """Return the places of the archive's rows, their batches."""
    batch = combined(table[BATCH]).to_numpy()
    return lambda at: pa.array([f"archive: batch {each}" for each in batch[at].tolist()], pa.string())


@dataclass(frozen=True)
class ArchiveDecoder(BatchesDecoder):
    """Take events as the archive has them; see `Decoder` for the methods."""

    as_they_are: frozenset[str]
    """Columns that are read as nothing but key, time or id: their text and times are the archive's own, of whatever type
    the source has them."""

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the rows; a value of a wrong type makes its row a dead letter."""
        read = pa.Table.from_struct_array(combined(table[ARCHIVED]))
        found = {name: read.schema.field(name).type for name in self.as_they_are}
        events, error = typed(read, replace(self.columns, types={**self.columns.types, **found}))
        yield Rows(
            table=events,
            error=None if error.null_count == len(error) else error,
            raw=lambda at: text_of_rows(read.take(pa.array(at))),
            source=places(table),
        )


_OF_RECORD = {KEY: "key", TIME: "timestamp", PARTITION: "partition", OFFSET: "offset"}


def are_whole(table: pa.Table) -> bool:
    """Say whether rows are whole rows of the archive: no source has rows with a struct."""
    return RECORD in table.column_names and pa.types.is_struct(table.schema.field(RECORD).type)


class WholeDecoder(BatchesDecoder):
    """Decode whole rows of any source; see `Decoder` for the methods."""

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the rows, rows that came as JSON apart from others."""
        for kind in pc.unique(table[KIND]).to_pylist():
            yield self._rows(kind, table.filter(pc.equal(table[KIND], kind)).combine_chunks())

    def _rows(self, kind: str, table: pa.Table) -> Rows:
        texts, errors = combined(table[RAW]), {}
        columns = self.columns
        of_record = self._of_record(table)
        payload = pa.schema([field for field in columns.schema if field.name not in of_record])
        if NO_VALUE not in columns.needed:
            errors = dict.fromkeys(np.flatnonzero(nulls_of(texts)).tolist(), NULL_VALUE)
        read = pa.table({"": pa.nulls(len(texts))})
        if len(payload):
            lines = index_values(pc.fill_null(texts, "{}").cast(pa.binary()))
            read, wrong = read_lines(lines, payload) if kind == JSON else _of_texts(lines, payload)
            errors = wrong | errors
        for name, found in of_record.items():
            read = read.append_column(name, found)
        events, error = typed(read, columns, errors)
        return Rows(
            table=events,
            error=None if error.null_count == len(error) else error,
            raw=lambda at: _cut(texts.take(pa.array(at))),
            source=places(table),
            whole=lambda at: table.select(SCHEMA.names).take(pa.array(at)).cast(SCHEMA),
        )

    def _of_record(self, table: pa.Table) -> dict[str, pa.Array]:
        """Return the read columns of a topic's record; none for other sources, whose own columns may have their names."""
        record = combined(table[RECORD])
        if record.null_count == len(record):
            return {}
        if HEADERS in self.columns.needed:
            raise SourceError(
                f"pipeline.archive: the archive has no {HEADERS!r}, because records are kept whole without headers; leave the column out"
            )
        return {
            name: table[RAW].is_null() if name == NO_VALUE else pc.struct_field(record, _OF_RECORD[name])
            for name in self.columns.needed
            if name in META
        }


def _of_texts(lines: Lines, payload: pa.Schema) -> tuple[pa.Table, dict[int, str]]:
    """Return the columns of rows that have a text for each; see `read_lines`. SourceError for a list or map: such rows have none."""
    lacking = next((field.name for field in payload if not is_kept(field.type)), None)
    if lacking is not None:
        raise SourceError(
            f"pipeline.archive: the archive has no column {lacking!r}, because rows of this source are kept without lists and maps; "
            "leave the column out, or read the source again"
        )
    stored = {name_of([stored_name(name)]): name for name in payload.names}
    read, errors = read_lines(lines, pa.schema([(name, pa.string()) for name in stored]))
    return read.rename_columns([stored[name] for name in read.column_names]), errors


def _cut(texts: pa.Array) -> pa.Array:
    return pa.array([None if text is None else raw_text(text.encode()) for text in texts.to_pylist()], pa.string())
