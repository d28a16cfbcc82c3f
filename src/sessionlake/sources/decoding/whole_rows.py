"""Whole rows of the archive, decoded again as the rows that they were."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import combined
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decoded import typed
from sessionlake.sources.decoding.json_lines import read_lines
from sessionlake.sources.decoding.kafka_records import NULL_VALUE
from sessionlake.sources.decoding.lines import index_values
from sessionlake.sources.decoding.raw import raw_text
from sessionlake.sources.decoding.rows import BATCH, Rows
from sessionlake.sources.decoding.safe_cast import nulls_of
from sessionlake.sources.decoding.whole import JSON, KIND, RAW, RECORD, SCHEMA
from sessionlake.sources.record_columns import KEY, META, NO_VALUE, OFFSET, PARTITION, TIME

_OF_RECORD = {KEY: "key", TIME: "timestamp", PARTITION: "partition", OFFSET: "offset"}


def are_whole(table: pa.Table) -> bool:
    """Say whether rows are whole rows of the archive: no source has rows with a struct."""
    return RECORD in table.column_names and pa.types.is_struct(table.schema.field(RECORD).type)


@dataclass(frozen=True)
class WholeDecoder:
    """Decode whole rows of any source; see `Decoder` for the methods."""

    columns: EventColumns

    def part(self, table: pa.Table) -> tuple[pa.Table, None]:
        """Return all: an archive sends no corrections."""
        return table, None

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the rows, those that came as JSON apart from the others."""
        for kind in pc.unique(table[KIND]).to_pylist():
            yield self._rows(kind, table.filter(pc.equal(table[KIND], kind)).combine_chunks())

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Raise NotImplementedError: the archive does not keep the order of its rows."""
        raise NotImplementedError

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Yield the rows of each batch."""
        batch = combined(table[BATCH]).to_numpy()
        for batch_id in np.unique(batch).tolist():
            yield from ((batch_id, rows) for rows in self.decode(table.filter(pa.array(batch == batch_id))))

    def _rows(self, kind: str, table: pa.Table) -> Rows:
        texts, errors = combined(table[RAW]), {}
        columns = self.columns
        of_record = self._of_record(table)
        payload = pa.schema([field for field in columns.schema if field.name not in of_record])
        if NO_VALUE not in columns.needed:
            errors = dict.fromkeys(np.flatnonzero(nulls_of(texts)).tolist(), NULL_VALUE)
        if kind != JSON:
            payload = pa.schema([(field.name, pa.string()) for field in payload])
        read = pa.table({"": pa.nulls(len(texts))})
        if len(payload):
            read, wrong = read_lines(index_values(pc.fill_null(texts, "{}").cast(pa.binary())), payload)
            errors = wrong | errors
        for name, found in of_record.items():
            read = read.append_column(name, found)
        events, error = typed(read, columns, errors)
        batch = combined(table[BATCH]).to_numpy()
        return Rows(
            table=events,
            error=None if error.null_count == len(error) else error,
            raw=lambda at: _cut(texts.take(pa.array(at))),
            source=lambda at: pa.array([f"archive: batch {each}" for each in batch[at].tolist()], pa.string()),
            whole=lambda at: table.select(SCHEMA.names).take(pa.array(at)).cast(SCHEMA),
        )

    def _of_record(self, table: pa.Table) -> dict[str, pa.Array]:
        """Return the columns of a topic's record that are read; of other sources none, whose own columns may have their names."""
        record = combined(table[RECORD])
        if record.null_count == len(record):
            return {}
        return {
            name: table[RAW].is_null() if name == NO_VALUE else pc.struct_field(record, _OF_RECORD[name])
            for name in self.columns.needed
            if name in META
        }


def _cut(texts: pa.Array) -> pa.Array:
    return pa.array([None if text is None else raw_text(text.encode()) for text in texts.to_pylist()], pa.string())
