"""The backfill as one Spark job: everything of a key brought together in its bucket, and compared there."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.columnar.arrays import combined
from sessionlake.config.load import Config
from sessionlake.engine.exchange import WIRE_DDL, read_wire
from sessionlake.errors import JobError
from sessionlake.jobs.backfill.archive import archived_events, archived_pieces, lacking
from sessionlake.jobs.backfill.basis import LATE, RESTATE
from sessionlake.jobs.backfill.compare import CORRECTION_SCHEMA, REMOVED, STORED, Scope, compare
from sessionlake.jobs.backfill.delta_log import BATCH, StreamedFile
from sessionlake.jobs.backfill.events import (
    Window,
    at_batch,
    needed_batches,
    read_events,
    rows_by_shard,
    source_pieces,
    split_basis,
)
from sessionlake.jobs.backfill.late import INCLUDED, late_events
from sessionlake.jobs.backfill.ledger import (
    applied_corrections,
    backfills_in_flight,
    placed_corrections,
    removals,
    restates,
    topic_tombstones,
)
from sessionlake.jobs.late.spans import BACKFILL, LateRun, Span
from sessionlake.jobs.sessionizer.mapper import events_of
from sessionlake.jobs.sessionizer.pipeline import engine_rows
from sessionlake.jobs.sessionizer.spec import SessionizerSpec
from sessionlake.sessions.kernel import lift
from sessionlake.sessions.partials import Partials, StateCodec
from sessionlake.stream.input_log import BatchInputs
from sessionlake.views import read_batches, sessions_meeting
from sessionlake.warehouse.tables import Tables, spark_schema

STATS = "stats"
_RESULT = CORRECTION_SCHEMA.append(pa.field(STATS, pa.string()))
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
        return engine_rows(sessions_meeting(self.tables, low_us, high_us, **versions))

    @cached_property
    def placed(self) -> list[StreamedFile]:
        """The files of corrections, with the batches that read them."""
        return placed_corrections(self.tables, self.inputs)


def first_window(basis: Basis) -> tuple[Window, int]:
    """Return the range, widened to the stored sessions that cross its edges and by the gap; and how many sessions it has."""
    gap, asked = basis.config.gap_us, basis.asked
    crossing = basis.stored(asked.from_us - gap, asked.to_us + gap)
    low, high, count = crossing.agg(F.min("start_us"), F.max("end_us"), F.count("*")).collect()[0]
    low = min(asked.from_us, asked.from_us if low is None else low)
    high = max(asked.to_us, asked.to_us if high is None else high)
    return Window(low - gap - 1, high + gap + 1), count


def compared(basis: Basis, window: Window, stored: int) -> tuple[DataFrame, set[int]]:
    """Return corrections (CORRECTION_SCHEMA) and rows of `stats`, and the batches whose events were read."""
    needed = needed_batches(basis.inputs, window)
    buckets = _buckets(basis, needed, stored)
    spec = replace(basis.spec, shards=buckets)
    wire = reduce(DataFrame.unionAll, [*_events(basis, spec, needed, window), *_others(basis, spec, window)])
    scope = Scope(basis.config.gap_us, basis.asked.from_us, basis.asked.to_us, window, basis.forgotten)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for inputs in read_wire(batches).values():
            found = compare(spec.aggregates, scope, inputs)
            stats = [*[None] * found.corrections.num_rows, json.dumps(found.stats)]
            nulls = pa.Table.from_pylist([{}], schema=CORRECTION_SCHEMA)
            table = pa.concat_tables([found.corrections, nulls]).append_column(STATS, pa.array(stats, pa.string()))
            yield from table.cast(_RESULT).combine_chunks().to_batches()

    return wire.repartitionById(buckets, "shard").mapInArrow(run, spark_schema(_RESULT)), needed


def _events(basis: Basis, spec: SessionizerSpec, needed: set[int], window: Window) -> list[DataFrame]:
    """Return wire rows of the events that the needed batches read and did not refuse: of the archive, if that has them all."""
    if not needed:
        return []
    # Now, not as pinned: so a key erased meanwhile stays out; what a batch brought does not change otherwise.
    version = basis.tables.latest_version(schemas.EVENTS)
    inputs = [i for i in basis.inputs if i.batch_id in needed]
    missing = lacking(basis.tables, basis.inputs, needed, window, version) if version >= 0 else "there is no archive"
    if missing is None:
        archived = archived_events(basis.tables, basis.inputs, window, version)
        return [split_basis(archived, spec, inputs, window, archived_pieces)]
    if basis.config.source.kind == "kafka":
        raise JobError(f"source.kind: 'kafka' can't be read again, and {missing}")
    rows = read_events(basis.tables, basis.config, spec, basis.inputs, needed)
    return [] if rows is None else [split_basis(rows, spec, inputs, window, source_pieces)]


def _buckets(basis: Basis, needed: set[int], stored: int) -> int:
    """Return into how many parts the keys are cut, so that each fits a task."""
    batches = read_batches(basis.tables).where(F.col("batch_id").between(min(needed), max(needed))) if needed else None
    events = 0 if batches is None else batches.agg(F.coalesce(F.sum("input"), F.lit(0))).collect()[0][0]
    return max(basis.spec.shards, -(-(events + stored) // _ROWS_A_BUCKET))


def _meeting(rows: DataFrame, low: int, high: int) -> DataFrame:
    ends = F.col("end_us").isNull() | (F.col("end_us") >= low)
    return rows.where(ends & (F.col("start_us") <= high))


def _others(basis: Basis, spec: SessionizerSpec, window: Window) -> list[DataFrame]:
    """Return wire rows of stored sessions, late events, restated partials and removed sessions that meet the window."""
    tables, gap = basis.tables, basis.config.gap_us
    stored = basis.stored(window.low - gap, window.high + gap)
    has_backfills = any(run.job == BACKFILL for run in basis.runs)
    in_flight = backfills_in_flight(tables, basis.placed) if has_backfills else set()
    with_ids = spec.columns.id is not None
    late = late_events(tables, basis.runs, basis.asked, in_flight=in_flight, with_ids=with_ids)
    late = late.where(F.unix_micros("event_time").between(window.low, window.high)).select(
        F.col("session_key").alias("key"),
        F.unix_micros("event_time").alias("time_us"),
        "event_id",
        "event",
        BATCH,
        INCLUDED,
    )
    return [_wired(stored, STORED, spec.shards), _lifted(late, spec), *_corrected(basis, spec, window)]


def _corrected(basis: Basis, spec: SessionizerSpec, window: Window) -> list[DataFrame]:
    """Return wire rows of restated partials and removed sessions, none where no correction is of that kind."""
    tables = basis.tables
    foreign = "kind = 'tombstone' or kind = 'replace' and not (job <=> 'backfill')"
    numbers = F.count_if(F.expr("kind = 'restate'")), F.count_if(F.expr(foreign))
    restated, other = tables.read(schemas.CORRECTIONS).agg(*numbers).collect()[0]
    topical = topic_tombstones(tables, basis.inputs[-1].batch_id)
    removed = other > 0 or (topical is not None and not topical.isEmpty())
    if not restated and not removed:
        return []
    corrections = applied_corrections(tables, basis.inputs, basis.placed)
    found = []
    if restated:
        found.append(_unpacked(_meeting(restates(corrections), window.low, window.high), spec))
    if removed:
        gone = removals(corrections, tables.read(schemas.CHANGELOG, basis.changelog_version))
        found.append(_wired(_meeting(gone, window.low, window.high), REMOVED, spec.shards))
    return found


def _wired(rows: DataFrame, kind: str, shards: int) -> DataFrame:
    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from rows_by_shard(kind, pa.Table.from_batches([batch]), shards)

    return rows.mapInArrow(split, WIRE_DDL)


def _lifted(late: DataFrame, spec: SessionizerSpec) -> DataFrame:
    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            partials = lift(spec.aggregates, events_of(spec, table))
            rows = at_batch(partials, table[BATCH].to_numpy()).to_table()
            yield from rows_by_shard(LATE, rows.append_column(INCLUDED, table[INCLUDED]), spec.shards)

    return late.mapInArrow(split, WIRE_DDL)


def _unpacked(restated: DataFrame, spec: SessionizerSpec) -> DataFrame:
    codec = StateCodec(spec.aggregates)

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            start, end, count, consumed = (
                table[name].to_numpy() for name in ("start_us", "end_us", "event_count", BATCH)
            )
            states = codec.decode(combined(table["state"]))
            partials = Partials(combined(table["key"]), start, end, count, np.asarray(consumed), states)
            yield from rows_by_shard(RESTATE, partials.to_table(), spec.shards)

    return restated.mapInArrow(split, WIRE_DDL)
