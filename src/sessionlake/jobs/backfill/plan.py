"""The backfill as one Spark job: everything of a key brought together in its bucket, and compared there."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import Partials, lift
from sessionlake.columnar.arrays import combined
from sessionlake.columnar.records import UNTIL
from sessionlake.config.load import Config
from sessionlake.engine.exchange import WIRE_DDL, read_wire
from sessionlake.errors import JobError
from sessionlake.jobs.backfill.archive import archived_events, archived_pieces, lacking
from sessionlake.jobs.backfill.basis import LATE, RESTATE
from sessionlake.jobs.backfill.compare import REMOVED, STORED, Scope, compare, correction_schema
from sessionlake.jobs.backfill.events import (
    Window,
    at_batch,
    needed_batches,
    rows_by_shard,
    source_pieces,
    split_basis,
)
from sessionlake.jobs.backfill.late import INCLUDED, late_events
from sessionlake.jobs.backfill.ledger import (
    applied_corrections,
    backfills_in_flight,
    removals,
    restates,
    taken_corrections,
    topic_tombstones,
)
from sessionlake.jobs.late.spans import BACKFILL, LateRun, Span
from sessionlake.operators.sessions.gaps import open_until
from sessionlake.operators.sessions.kernel import known_until
from sessionlake.operators.sessions.kind import engine_rows
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.sources.registry import sources_of
from sessionlake.stream.ingest import EVENTS, events_of
from sessionlake.stream.input_log import BatchInputs
from sessionlake.warehouse import schemas
from sessionlake.warehouse.streamed_files import BATCH
from sessionlake.warehouse.tables import Tables, spark_schema
from sessionlake.warehouse.views import read_batches, rows_meeting

STATS = "stats"
_ROWS_A_BUCKET = 400_000
"""Partials and sessions that one task holds: some hundred bytes each, several times over while it works."""


@dataclass(frozen=True)
class Basis:
    """What the sessions are computed from, as of the pinned batch."""

    tables: Tables
    config: Config
    spec: SessionizerSpec
    inputs: list[BatchInputs]
    runs: list[LateRun]
    asked: Span
    snapshot_version: int
    changelog_version: int
    forgotten: dict[str, int]
    """As in Scope."""

    def stored(self, low_us: int, high_us: int) -> DataFrame:
        """Return the stored sessions with a time in [low_us, high_us], as of the pinned batch."""
        versions = {"snapshot_version": self.snapshot_version, "changelog_version": self.changelog_version}
        return engine_rows(rows_meeting(self.tables, low_us, high_us, **versions))

    @cached_property
    def taken(self) -> DataFrame:
        """What became of the corrections that the batches took, see `taken_corrections`."""
        return taken_corrections(self.tables, self.inputs)


def first_window(basis: Basis) -> tuple[Window, int]:
    """Return the range, widened to the stored sessions that cross its edges and by the gap; and how many sessions it has."""
    gap, asked = basis.spec.windows.widest_us, basis.asked
    crossing = basis.stored(asked.from_us - gap, asked.to_us + gap)
    low, high, count = crossing.agg(F.min("start_us"), F.max("end_us"), F.count("*")).collect()[0]
    low = min(asked.from_us, asked.from_us if low is None else low)
    high = max(asked.to_us, asked.to_us if high is None else high)
    return Window(low - gap - 1, high + gap + 1), count


def compared(basis: Basis, window: Window, stored: int) -> tuple[DataFrame, set[int]]:
    """Return corrections (`correction_schema`) and rows of `stats`, and the batches whose events were read."""
    needed = needed_batches(basis.inputs, window)
    buckets = _buckets(basis, needed, stored)
    spec = basis.spec
    wire = reduce(DataFrame.unionAll, [*_events(basis, buckets, needed, window), *_others(basis, buckets, window)])
    scope = Scope(basis.spec.windows, basis.asked.from_us, basis.asked.to_us, window, basis.forgotten)

    schema = correction_schema(spec.windows)
    result = schema.append(pa.field(STATS, pa.string()))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for inputs in read_wire(batches).values():
            found = compare(spec.aggregates, scope, inputs)
            stats = [*[None] * found.corrections.num_rows, json.dumps(found.stats)]
            nulls = pa.Table.from_pylist([{}], schema=schema)
            table = pa.concat_tables([found.corrections, nulls]).append_column(STATS, pa.array(stats, pa.string()))
            yield from table.cast(result).combine_chunks().to_batches()

    return wire.repartitionById(buckets, "shard").mapInArrow(run, spark_schema(result)), needed


def _events(basis: Basis, buckets: int, needed: set[int], window: Window) -> list[DataFrame]:
    """Return wire rows of the events that the needed batches read and did not refuse: of the archive, if that has them all."""
    if not needed:
        return []
    # Now, not as pinned: so a key erased meanwhile stays out; what a batch brought does not change otherwise.
    version = basis.tables.latest_version(schemas.EVENTS)
    inputs = [i for i in basis.inputs if i.batch_id in needed]
    missing = lacking(basis.tables, basis.inputs, needed, window, version) if version >= 0 else "there is no archive"
    if missing is None:
        archived = archived_events(basis.tables, basis.inputs, window, version)
        return [split_basis(archived, basis.spec, buckets, inputs, window, archived_pieces)]
    source = sources_of(basis.tables.spark, basis.config)[EVENTS]
    offsets = [(i.batch_id, i.events) for i in basis.inputs]
    try:
        rows = source.replay(basis.tables, basis.spec.columns, offsets, needed)
    except JobError as error:
        raise JobError(f"{error}, and {missing}") from error
    return [] if rows is None else [split_basis(rows, basis.spec, buckets, inputs, window, source_pieces)]


def _buckets(basis: Basis, needed: set[int], stored: int) -> int:
    """Return into how many parts the keys are cut, so that each fits a task."""
    batches = read_batches(basis.tables).where(F.col("batch_id").between(min(needed), max(needed))) if needed else None
    events = 0 if batches is None else batches.agg(F.coalesce(F.sum("input"), F.lit(0))).collect()[0][0]
    return max(basis.config.pipeline.shards, -(-(events + stored) // _ROWS_A_BUCKET))


def _meeting(rows: DataFrame, low: int, high: int) -> DataFrame:
    ends = F.col("end_us").isNull() | (F.col("end_us") >= low)
    return rows.where(ends & (F.col("start_us") <= high))


def _others(basis: Basis, buckets: int, window: Window) -> list[DataFrame]:
    """Return wire rows of stored sessions, late events, restated partials and removed sessions that meet the window."""
    tables, gap = basis.tables, basis.spec.windows.widest_us
    stored = basis.stored(window.low - gap, window.high + gap)
    has_backfills = any(run.job == BACKFILL for run in basis.runs)
    in_flight = backfills_in_flight(tables, basis.taken) if has_backfills else set()
    with_ids = basis.spec.columns.id is not None
    late = late_events(tables, basis.runs, basis.asked, in_flight=in_flight, with_ids=with_ids)
    late = late.where(F.unix_micros("event_time").between(window.low, window.high)).select(
        F.col("session_key").alias("key"),
        F.unix_micros("event_time").alias("time_us"),
        "event_id",
        "event",
        BATCH,
        INCLUDED,
    )
    return [_wired(stored, STORED, buckets), _lifted(late, basis.spec, buckets), *_corrected(basis, buckets, window)]


def _corrected(basis: Basis, buckets: int, window: Window) -> list[DataFrame]:
    """Return wire rows of restated partials and removed sessions, none where no correction is of that kind."""
    tables = basis.tables
    foreign = "kind = 'tombstone' or kind = 'replace' and not (job <=> 'backfill')"
    numbers = F.count_if(F.expr("kind = 'restate'")), F.count_if(F.expr(foreign))
    restated, other = tables.read(schemas.CORRECTIONS).agg(*numbers).collect()[0]
    topical = topic_tombstones(tables, basis.inputs[-1].batch_id)
    removed = other > 0 or (topical is not None and not topical.isEmpty())
    if not restated and not removed:
        return []
    corrections = applied_corrections(tables, basis.taken, basis.inputs[-1].batch_id)
    found = []
    if restated:
        found.append(_unpacked(_meeting(restates(corrections), window.low, window.high), basis.spec, buckets))
    if removed:
        gone = removals(corrections, tables.read(schemas.CHANGELOG, basis.changelog_version))
        found.append(_wired(_meeting(gone, window.low, window.high), REMOVED, buckets))
    return found


def _wired(rows: DataFrame, kind: str, shards: int) -> DataFrame:
    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from rows_by_shard(kind, pa.Table.from_batches([batch]), shards)

    return rows.mapInArrow(split, WIRE_DDL)


def _lifted(late: DataFrame, spec: SessionizerSpec, buckets: int) -> DataFrame:
    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            events = events_of(spec.events, table)
            partials = lift(spec.aggregates, events, open_until(spec, events))
            rows = at_batch(partials, table[BATCH].to_numpy()).to_table()
            yield from rows_by_shard(LATE, rows.append_column(INCLUDED, table[INCLUDED]), buckets)

    return late.mapInArrow(split, WIRE_DDL)


def _unpacked(restated: DataFrame, spec: SessionizerSpec, buckets: int) -> DataFrame:
    codec = StateCodec(spec.aggregates)

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            start, end, count, consumed = (
                table[name].to_numpy() for name in ("start_us", "end_us", "event_count", BATCH)
            )
            states = codec.decode(combined(table["state"]))
            until = known_until(spec.windows, end, combined(table[UNTIL]) if UNTIL in table.column_names else None)
            partials = Partials(combined(table["key"]), start, end, count, np.asarray(consumed), states, until)
            yield from rows_by_shard(RESTATE, partials.to_table(), buckets)

    return restated.mapInArrow(split, WIRE_DDL)
