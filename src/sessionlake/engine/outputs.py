"""Outputs of tasks as Parquet files, which each task writes itself. The driver only commits their names.

Spark's way (rows over a socket, a cache, rows again, Parquet) took 0.9 s for 225k rows; this takes 0.05 s.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sessionlake.warehouse.arrow_files import file_system
from sessionlake.warehouse.data_file import DataFile
from sessionlake.warehouse.schemas import YEAR_1_US, YEAR_9999_US

CHANGES, REPLACED = "changes", "replaced"
ROWS_HELD = 1 << 16
BYTES_HELD = 32 << 20


@dataclass(frozen=True)
class Output:
    """A table that receives the tasks' output rows of one kind."""

    kind: str
    """CHANGES, REPLACED, or the kind of an `Aside`, or a name in `ShardResult.side`."""
    table: str
    uri: str
    schema: pa.Schema
    """The table's columns; batch_id and commit_id among them."""
    rows: Callable[[pa.Table], pa.Table]
    """Converts the operator's output rows to the table's other columns."""
    key: str | None = None
    """The column for look-ups of rows, if it is a single column of many values: files then have a Bloom filter for it."""
    guarded: bool = False
    """Whether the pipeline stops if another writer has changed rows, because its state is read from them. Users may delete rows of
    side tables, since the stream computes nothing from them."""


class OutputWriter:
    """Writes a task's rows of one kind as a Parquet file, piece by piece.

    Besides the piece that it is given, it holds less than ROWS_HELD rows and BYTES_HELD bytes. The limit in bytes is needed
    because a dead letter has its raw text.

    `marks` (batch_id, commit_id) are added to each row as columns. `task` is part of the file's name, which is unique anyway.
    """

    def __init__(self, output: Output, marks: Mapping[str, Any], task: int) -> None:
        self._output, self._marks = output, marks
        self._path = f"part-{task:05d}-{uuid.uuid4()}.snappy.parquet"
        self._held: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._bounds = _Bounds()
        system, folder = file_system(output.uri)
        self._sink = system.open_output_stream(f"{folder}/{self._path}")
        # Columns of few values become dictionaries; a search for such columns among keys and states costs five times the writing.
        repeated = [
            name for name in ("op", "reason", "kind", "outcome", "revision", *marks) if name in output.schema.names
        ]
        # A look-up then reads few files without the key: of 200 in 24 ms in DuckDB, in place of 141. It takes a
        # millisecond for 50,000 rows, and a twentieth of the bytes.
        bloom = {output.key: {"ndv": ROWS_HELD, "fpp": 0.01}} if output.key else None
        self._file = pq.ParquetWriter(
            self._sink,
            output.schema,
            compression="snappy",
            use_dictionary=repeated,
            store_schema=False,
            bloom_filter_options=bloom,
        )

    def write(self, rows: pa.Table) -> None:
        """Add rows as the operator put them out."""
        table = self._output.rows(rows)
        for name, value in self._marks.items():
            table = table.append_column(name, pa.repeat(value, table.num_rows))
        table = table.select(self._output.schema.names).cast(self._output.schema)
        self._held.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= ROWS_HELD or self._bytes >= BYTES_HELD:
            self._flush()

    def close(self) -> DataFile:
        """End the file, and return its entry for a commit."""
        self._flush()
        self._file.close()
        size = self._sink.tell()
        self._sink.close()
        return DataFile(self._output.table, self._path, size, self._bounds.statistics(self._marks["batch_id"]))

    def _flush(self) -> None:
        if self._held:
            table = pa.concat_tables(self._held)
            self._held.clear()
            self._rows = self._bytes = 0
            self._bounds.add(table)
            # Rows are sorted by key, so smaller row groups have narrower bounds, and a reader skips more of them.
            self._file.write_table(table, row_group_size=ROWS_HELD)


def write_output(output: Output, rows: pa.Table, marks: Mapping[str, Any], task: int) -> DataFile:
    """Write rows of one kind that are complete."""
    writer = OutputWriter(output, marks, task)
    writer.write(rows)
    return writer.close()


class _Bounds:
    """How many rows a file has, and the least and greatest of each time in it, as Delta's log has them."""

    def __init__(self) -> None:
        self._rows = 0
        self._least: dict[str, int] = {}
        self._greatest: dict[str, int] = {}
        self._unbounded: set[str] = set()
        """Columns with a time that Python's datetime can't hold. The log has no bounds for them."""

    def add(self, table: pa.Table) -> None:
        self._rows += table.num_rows
        for name in table.column_names:
            if not pa.types.is_timestamp(table.schema.field(name).type):
                continue
            extremes = pc.min_max(table[name].cast(pa.int64()))
            low, high = extremes["min"].as_py(), extremes["max"].as_py()
            if low is None:
                continue
            if low < YEAR_1_US or high > YEAR_9999_US:
                self._unbounded.add(name)
            self._least[name] = min(low, self._least.get(name, low))
            self._greatest[name] = max(high, self._greatest.get(name, high))

    def statistics(self, batch_id: int) -> str:
        """Return the statistics of the file as JSON; every row is of the batch."""
        bounded = self._least.keys() - self._unbounded
        # Delta keeps milliseconds: a bound must not move inwards.
        lowest = {name: _iso(us // 1000) for name, us in self._least.items() if name in bounded}
        highest = {name: _iso(-(-us // 1000)) for name, us in self._greatest.items() if name in bounded}
        bounds = {"minValues": {"batch_id": batch_id, **lowest}, "maxValues": {"batch_id": batch_id, **highest}}
        return json.dumps({"numRecords": self._rows, **bounds})


def _iso(millis: int) -> str:
    return f"{np.datetime64(millis, 'ms')}Z"
