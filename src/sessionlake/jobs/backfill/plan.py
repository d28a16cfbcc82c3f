"""The backfill as one Spark job: everything about a key comes together in a bucket, and is compared there."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.layouts import Layouts
from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import combined
from sessionlake.columnar.records import UNTIL
from sessionlake.engine.exchange import WIRE_DDL, read_wire
from sessionlake.errors import JobError
from sessionlake.jobs.backfill.events import (
    archived_events,
    at_batch,
    lacking,
    needed_batches,
    rows_by_shard,
    split_basis,
    whole_batches,
    whole_rows,
)
from sessionlake.jobs.backfill.ledger import backfills_in_flight, late_events, restates
from sessionlake.jobs.late.spans import BACKFILL, LateRun, Span
from sessionlake.sources.base import Source
from sessionlake.sources.lookups.versions import Pins
from sessionlake.sources.registry import sources_of
from sessionlake.stream.accepted_commands import refuses_source
from sessionlake.stream.ingest import EVENTS, events_of
from sessionlake.stream.recompute import INCLUDED, LATE, RESTATE, Basis, Recompute, Window
from sessionlake.stream.relaid import newest_rows, numbers_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.spark_columns import map_in_arrow
from sessionlake.warehouse.streamed_files import BATCH
from sessionlake.warehouse.tables import spark_schema
from sessionlake.warehouse.views import read_batches

STATS = "stats"
_ROWS_A_BUCKET = 400_000
"""Partials and stored rows that one task holds: some hundred bytes each, several times over while it works."""


@dataclass(frozen=True)
class RunBasis(Basis):
    """A basis, and the late events that this run and earlier runs take in."""

    asked: Span
    runs: list[LateRun]
    taken: DataFrame
    """The outcome of each correction that the batches took, see `taken_corrections`."""


def compared(basis: RunBasis, recompute: Recompute, window: Window, stored: int) -> tuple[DataFrame, set[int]]:
    """Return corrections (as `recompute.schema` says) and rows of `stats`, and the batches whose events were read."""
    needed = needed_batches(basis.inputs, window)
    buckets = _buckets(basis, needed, stored)
    parts = [*_events(basis, recompute, buckets, needed, window), *_corrected(basis, recompute, buckets, window)]
    parts += [_wired(rows, kind, recompute, buckets) for kind, rows in recompute.others(window)]
    wire, compare, schema = reduce(DataFrame.unionAll, parts), recompute.compare(window), recompute.schema
    result = schema.append(pa.field(STATS, pa.string()))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for inputs in read_wire(batches).values():
            found = compare(inputs)
            stats = [*[None] * found.corrections.num_rows, json.dumps(found.stats)]
            nulls = pa.Table.from_pylist([{}], schema=schema)
            table = pa.concat_tables([found.corrections, nulls]).append_column(STATS, pa.array(stats, pa.string()))
            yield from table.cast(result).combine_chunks().to_batches()

    return map_in_arrow(wire.repartitionById(buckets, "shard"), run, spark_schema(result)), needed


def _events(basis: RunBasis, recompute: Recompute, buckets: int, needed: set[int], window: Window) -> list[DataFrame]:
    """Return wire rows of the events that the needed batches read and did not refuse: of the archive, if that has them all."""
    if not needed:
        return []
    # The newest version, and not a pinned one: a key that was erased since must not return. The events of a batch
    # never change otherwise.
    version = basis.tables[schemas.EVENTS].latest_version()
    archived, read = recompute.pieces([i for i in basis.inputs if i.batch_id in needed])
    missing = lacking(basis.tables, basis.inputs, needed, window, version) if version >= 0 else "there is no archive"
    if missing is None:
        whole_version = basis.tables[schemas.SOURCE_ROWS].latest_version()
        whole = whole_batches(basis.tables, basis.inputs, needed, window, recompute.events, whole_version)
        events = archived_events(basis.tables, basis.inputs, window, version, whole)
        parts = [split_basis(events, buckets, window, archived)]
        if whole:
            _with_versions(basis, recompute, whole)
            parts.append(split_basis(whole_rows(basis.tables, window, whole, whole_version), buckets, window, read))
        return parts
    if refusal := refuses_source(basis.config, missing):
        raise JobError(refusal)
    source = _with_versions(basis, recompute, needed)
    offsets = [(i.batch_id, i.events) for i in basis.inputs]
    try:
        rows = source.replay(basis.tables, recompute.events.decoder.columns, offsets, needed)
    except JobError as error:
        raise JobError(f"{error}, and {missing}") from error
    return [] if rows is None else [split_basis(rows, buckets, window, read)]


def _with_versions(basis: RunBasis, recompute: Recompute, needed: set[int]) -> Source:
    """Return the source, once the versions of lookups that the needed batches read are there."""
    sources = sources_of(basis.tables.spark, basis.config)
    pins = Pins(basis.tables.spark, sources, {EVENTS: recompute.events.lookups.each})
    for read_by in {tuple(i.pins.items()) for i in basis.inputs if i.batch_id in needed}:
        pins.of_batch(dict(read_by))
    return sources[EVENTS]


def _buckets(basis: RunBasis, needed: set[int], stored: int) -> int:
    """Return the number of parts into which the keys are cut, chosen such that a part fits a task."""
    batches = read_batches(basis.tables).where(F.col("batch_id").between(min(needed), max(needed))) if needed else None
    events = 0 if batches is None else batches.agg(F.coalesce(F.sum("input"), F.lit(0))).collect()[0][0]
    return max(basis.config.pipeline.shards, -(-(events + stored) // _ROWS_A_BUCKET))


def _corrected(basis: RunBasis, recompute: Recompute, buckets: int, window: Window) -> Iterator[DataFrame]:
    """Yield wire rows of late events, and of restated partials, that meet the window."""
    tables = basis.tables
    has_backfills = any(run.job == BACKFILL for run in basis.runs)
    in_flight = backfills_in_flight(tables, basis.taken) if has_backfills else set()
    with_ids = recompute.events.columns.id is not None
    late = recompute.late(late_events(tables, basis.runs, basis.asked, in_flight=in_flight, with_ids=with_ids))
    late = late.where(F.unix_micros("event_time").between(window.low, window.high)).select(
        F.col("key").alias("key"),
        F.unix_micros("event_time").alias("time_us"),
        "event_id",
        "event",
        BATCH,
        INCLUDED,
    )
    yield _lifted(late, recompute, buckets)
    if not tables[schemas.CORRECTIONS].read().where("kind = 'restate'").isEmpty():
        rows = restates(basis.applied).where((F.col("end_us") >= window.low) & (F.col("start_us") <= window.high))
        yield _unpacked(rows, recompute, buckets)


def _wired(rows: DataFrame, kind: str, recompute: Recompute, shards: int) -> DataFrame:
    operator, layouts = recompute.operator, Layouts.of(recompute.events.layouts, recompute.aggregates)

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            table = table if layouts is None else newest_rows(operator, layouts, table)
            yield from rows_by_shard(kind, table, shards)

    return map_in_arrow(rows, split, WIRE_DDL)


def _lifted(late: DataFrame, recompute: Recompute, buckets: int) -> DataFrame:
    spec, lifted = recompute.events, recompute.lifted()

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            partials = lifted(events_of(spec, table))
            rows = at_batch(partials, table[BATCH].to_numpy()).to_table()
            yield from rows_by_shard(LATE, rows.append_column(INCLUDED, table[INCLUDED]), buckets)

    return map_in_arrow(late, split, WIRE_DDL)


def _unpacked(restated: DataFrame, recompute: Recompute, buckets: int) -> DataFrame:
    codec, placed = StateCodec(recompute.aggregates), recompute.restated()
    layouts = Layouts.of(recompute.events.layouts, recompute.aggregates)

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            start, end, count, consumed = (
                table[name].to_numpy() for name in ("start_us", "end_us", "event_count", BATCH)
            )
            packed = combined(table["state"])
            states = codec.decode(packed if layouts is None else layouts.newest(packed, numbers_of(table)))
            until = combined(table[UNTIL]) if UNTIL in table.column_names else None
            partials = placed(Partials(combined(table["key"]), start, end, count, np.asarray(consumed), states), until)
            yield from rows_by_shard(RESTATE, partials.to_table(), buckets)

    return map_in_arrow(restated, split, WIRE_DDL)
