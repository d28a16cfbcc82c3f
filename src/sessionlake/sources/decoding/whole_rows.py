"""Whole rows of the archive, decoded again as the rows that they were."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import combined
from sessionlake.sources.decoding.archived import BatchesDecoder, places
from sessionlake.sources.decoding.decoded import typed
from sessionlake.sources.decoding.json_lines import read_lines
from sessionlake.sources.decoding.kafka_records import NULL_VALUE
from sessionlake.sources.decoding.lines import index_values
from sessionlake.sources.decoding.raw import raw_text
from sessionlake.sources.decoding.rows import Rows
from sessionlake.sources.decoding.safe_cast import nulls_of
from sessionlake.sources.decoding.whole import JSON, KIND, RAW, RECORD, SCHEMA
from sessionlake.sources.record_columns import KEY, META, NO_VALUE, OFFSET, PARTITION, TIME

_OF_RECORD = {KEY: "key", TIME: "timestamp", PARTITION: "partition", OFFSET: "offset"}


def are_whole(table: pa.Table) -> bool:
    """Say whether rows are whole rows of the archive: no source has rows with a struct."""
    return RECORD in table.column_names and pa.types.is_struct(table.schema.field(RECORD).type)


class WholeDecoder(BatchesDecoder):
    """Decode whole rows of any source; see `Decoder` for the methods."""

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the rows, those that came as JSON apart from the others."""
        for kind in pc.unique(table[KIND]).to_pylist():
            yield self._rows(kind, table.filter(pc.equal(table[KIND], kind)).combine_chunks())

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
        return Rows(
            table=events,
            error=None if error.null_count == len(error) else error,
            raw=lambda at: _cut(texts.take(pa.array(at))),
            source=places(table),
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
