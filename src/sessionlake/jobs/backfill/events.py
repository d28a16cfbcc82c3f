"""The events that the stream had consumed, read again as it read them: each with the batch that classified it."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.config.load import Config
from sessionlake.engine import exchange
from sessionlake.engine.exchange import WIRE_DDL
from sessionlake.engine.operator import by_shard, shard_of
from sessionlake.errors import PipelineStateError, SourceError, first_line
from sessionlake.jobs.backfill.delta_log import BATCH, read_files, streamed_files
from sessionlake.jobs.sessionizer.files import file_rows
from sessionlake.jobs.sessionizer.mapper import Rows, events_of, split_events
from sessionlake.jobs.sessionizer.operator import CONTENT, PATH
from sessionlake.jobs.sessionizer.pipeline import with_live_settings
from sessionlake.jobs.sessionizer.spec import SessionizerSpec
from sessionlake.jobs.sessionizer.stream import is_local
from sessionlake.operators.sessions.windows import NO_WATERMARK, Bounds
from sessionlake.sessions.kernel import lift
from sessionlake.sessions.partials import Partials
from sessionlake.stream.input_log import BatchInputs
from sessionlake.warehouse.tables import Tables, spark_schema

MERGED, ALONE = "merged", "alone"
"""Kinds of wire rows: partials that were accepted whatever they met, and single events that may have been late.
Both as `Partials.to_table` has them, the column revision holding the batch."""
Piece = tuple[int, str, Partials]
"""A batch, a kind of wire rows, and partials of that kind which the batch brought."""
Pieces = Callable[[SessionizerSpec, dict[int, BatchInputs], pa.Table], Iterator[Piece]]
NEEDED = "a backfill reads the events again, so they must still be there"
_LOG_FILE = re.compile(r"(\d+)(\.compact)?")


@dataclass(frozen=True)
class Window:
    """Closed interval of event times, microseconds, that is read."""

    low: int
    high: int

    def meets(self, start: Ints, end: Ints) -> np.ndarray:
        """Say which closed intervals have a time in common with the window."""
        return (end >= self.low) & (start <= self.high)


def needed_batches(inputs: Iterable[BatchInputs], window: Window) -> set[int]:
    """Return the batches that can have brought events of a window.

    What a batch does not refuse lies between the retention before the watermark that preceded it and the watermark
    that followed it (late events included).
    """
    return {
        i.batch_id
        for i in inputs
        if i.watermark_us is not None
        and i.watermark_us >= window.low
        and (i.watermark_before_us is None or i.watermark_before_us - i.settings["retention_us"] <= window.high)
    }


def read_events(
    tables: Tables, config: Config, spec: SessionizerSpec, inputs: list[BatchInputs], needed: Collection[int]
) -> DataFrame | None:
    """Return the source rows that the needed batches read, with a column batch_id; None where there are none."""
    if config.source.kind == "delta":
        offsets = [(i.batch_id, i.events) for i in inputs]
        files = streamed_files(tables, config.source.path, offsets, needed)
        if not files:
            return None
        rows = read_files(tables, config.source.path, files)
        return rows.select(*(F.col(f.name).cast(f.dataType) for f in spark_schema(spec.columns.schema)), BATCH)
    files_read = _logged_files(tables, config, inputs, needed)
    return None if files_read is None else _with_content(files_read, config)


def _logged_files(
    tables: Tables, config: Config, inputs: list[BatchInputs], needed: Collection[int]
) -> DataFrame | None:
    """Return (path, batch_id) of the files in the file source's log, read by the needed batches."""
    pairs: list[tuple[int, int]] = []
    reached = -1
    for i in inputs:
        offset = reached if i.events is None else int(i.events["logOffset"])
        if i.batch_id in needed:
            pairs += [(log, i.batch_id) for log in range(reached + 1, offset + 1)]
        reached = max(reached, offset)
    if not pairs:
        return None
    spark = tables.spark
    lines = spark.read.text([f"{config.checkpoint}/sources/0/{name}" for name in _log_names(tables, config, reached)])
    entry = F.from_json("value", "path string, batchId long")
    # In the log paths are URL-encoded, where + stands for itself.
    path = F.url_decode(F.replace("e.path", F.lit("+"), F.lit("%2B")))
    logged = lines.where("value like '{%'").select(entry.alias("e")).select(path.alias(PATH), F.col("e.batchId"))
    batches = spark.createDataFrame(pairs, f"batchId long, {BATCH} long")
    found = logged.distinct().join(F.broadcast(batches), "batchId").select(PATH, BATCH)
    if is_local(config.source.path):
        found = found.withColumn(PATH, F.regexp_replace(PATH, "^file:(//)?", ""))
    return found


def _log_names(tables: Tables, config: Config, reached: int) -> list[str]:
    """Return the log's files up to an offset: the last compacted one and what came after it."""
    directory = f"{config.checkpoint}/sources/0"
    parsed = [(int(m[1]), bool(m[2]), m[0]) for m in map(_LOG_FILE.fullmatch, tables.names(directory)) if m]
    compacted = max((n for n, is_compact, _ in parsed if is_compact), default=-1)
    names = [name for n, is_compact, name in parsed if n == compacted and is_compact]
    names += [name for n, is_compact, name in parsed if n > compacted and not is_compact]
    if not names or max(n for n, _, _ in parsed) < reached:
        raise PipelineStateError(
            f"checkpoint: the log of source files in {directory!r} is incomplete; put the checkpoint back, or use `sessionlake rebuild`"
        )
    return names


def _with_content(files: DataFrame, config: Config) -> DataFrame:
    """Spread files over tasks; with their content where workers can't open them. SourceError where one is gone."""
    spark = files.sparkSession
    if is_local(config.source.path):
        return files.repartition(max(1, min(files.count(), 4 * spark.sparkContext.defaultParallelism)))
    paths = [row[0] for row in files.select(PATH).toLocalIterator()]
    try:
        content = spark.read.format("binaryFile").load(paths)
    except AnalysisException as error:
        raise SourceError(f"source.path: {first_line(error)}; {NEEDED}") from error
    return content.select(F.col("path").alias(PATH), CONTENT).join(F.broadcast(files), PATH)


def split_basis(
    rows: DataFrame, spec: SessionizerSpec, inputs: Iterable[BatchInputs], window: Window, pieces: Pieces
) -> DataFrame:
    """Return wire rows of the kinds merged and alone: what the rows' batches did not refuse, as far as it meets the window.

    `inputs` are those of the rows' batches; they go to every task.
    """
    by_batch = {i.batch_id: i for i in inputs}

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record in batches:
            for batch_id, kind, partials in pieces(spec, by_batch, pa.Table.from_batches([record])):
                inside = np.flatnonzero(window.meets(partials.start, partials.end))
                if len(inside):
                    read = at_batch(partials.take(inside), np.full(len(inside), batch_id))
                    shard = shard_of(read.keys, spec.shards)
                    yield from exchange.wire_rows(by_shard(kind, read.to_table(), shard))

    return rows.mapInArrow(split, WIRE_DDL)


def source_pieces(spec: SessionizerSpec, by_batch: dict[int, BatchInputs], table: pa.Table) -> Iterator[Piece]:
    """Yield what the rows' batches did not refuse, read and judged by the stream's own mapper."""
    for batch_id, rows in (_file_rows(spec) if spec.format is not None else _table_rows)(table):
        live, bounds = bounds_of(spec, by_batch[batch_id])
        # One part of the keys: they are parted further on.
        live = replace(live, shards=1, archive=False)
        for _, kind, found in split_events(live, bounds, by_batch[batch_id].clock_us, rows):
            if kind == MERGED:
                yield batch_id, kind, Partials.from_table(found)
            elif kind == ALONE:
                yield batch_id, kind, lift(spec.aggregates, events_of(spec, found))


def bounds_of(spec: SessionizerSpec, inputs: BatchInputs) -> tuple[SessionizerSpec, Bounds]:
    """Return the spec under the settings of a batch, and the times that decided about it."""
    live = with_live_settings(spec, inputs.settings)
    before = NO_WATERMARK if inputs.watermark_before_us is None else inputs.watermark_before_us
    return live, live.windows.bounds(before)


def at_batch(partials: Partials, batch: Ints) -> Partials:
    """Return partials whose revision is the batch that consumed them."""
    return Partials(partials.keys, partials.start, partials.end, partials.count, batch, partials.states)


def _file_rows(spec: SessionizerSpec) -> Callable[[pa.Table], Iterator[tuple[int, Rows]]]:
    def read(table: pa.Table) -> Iterator[tuple[int, Rows]]:
        has_content = CONTENT in table.column_names
        contents = table[CONTENT].to_pylist() if has_content else [None] * table.num_rows
        for path, content, batch_id in zip(table[PATH].to_pylist(), contents, table[BATCH].to_pylist(), strict=True):
            for decoded in file_rows(spec, path, content):
                yield batch_id, Rows(decoded.table, decoded.error, _no_text, _no_text)

    return read


def _table_rows(table: pa.Table) -> Iterator[tuple[int, Rows]]:
    batch = table[BATCH].to_numpy()
    events = table.drop_columns([BATCH])
    for batch_id in np.unique(batch).tolist():
        some = events.filter(pa.array(batch == batch_id)).combine_chunks()
        yield batch_id, Rows(some, None, _no_text, _no_text)


def _no_text(at: Ints) -> pa.Array:
    """Stand for text and place of rows, which nobody asks for here."""
    return pa.nulls(len(at), pa.string())


def rows_by_shard(kind: str, table: pa.Table, shards: int) -> Iterator[pa.RecordBatch]:
    """Yield a table with a column `key` as wire rows."""
    yield from exchange.wire_rows(by_shard(kind, table, shard_of(combined(table["key"]), shards)))
