"""Sessions computed again. A session is as long as its chain of events, so the range that is read grows until no chain crosses its bounds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.aggregates.base import Events
from sessionlake.aggregates.partials import Partials, lift
from sessionlake.columnar.records import UNTIL
from sessionlake.config.load import Config
from sessionlake.engine.operator import Inputs, Keyed
from sessionlake.operators.sessions.changelog import SESSIONS
from sessionlake.operators.sessions.gaps import open_until
from sessionlake.operators.sessions.kernel import known_until, premerge
from sessionlake.operators.sessions.kind import Sessions, engine_rows
from sessionlake.operators.sessions.mapper import ALONE, MERGED, split_events
from sessionlake.operators.sessions.recompute_compare import Scope, compare
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.operators.shared.cleanups.names import TTL
from sessionlake.operators.shared.windowing.emission import Progress
from sessionlake.operators.shared.windowing.replay import by_number, progress_before
from sessionlake.stream.comparison import Difference, correction_schema
from sessionlake.stream.ingest import events_of
from sessionlake.stream.input_log import BatchInputs, batch_inputs
from sessionlake.stream.recompute import REMOVED, STORED, Basis, Piece, Pieces, Window, read_again
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.streamed_files import BATCH
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import rows_meeting

_Judges = Mapping[int, tuple[BatchInputs, Progress | None]]


class SessionRecompute:
    """See `Recompute` for the methods."""

    counts: ClassVar[Sequence[str]] = (
        "sessions", "unchanged", "corrections", "removed", "put", "late_included", "withheld",
    )  # fmt: skip
    right: ClassVar[str] = "the sessions agree with the events"

    def __init__(self, kind: Sessions, basis: Basis) -> None:
        spec = kind.spec
        self._spec, self._state, self._basis = spec, kind.changelogs[0], basis
        self.operator, self.aggregates, self.events = kind.operator(), spec.aggregates, spec.events
        self.schema = correction_schema(until=spec.windows.keeps_until)

    @classmethod
    def earliest(cls, config: Config, tables: Tables, last: BatchCommit, from_us: int) -> int:
        """Return the same: sessions of any time can be computed, except with a retention by number the ones beyond it."""
        if not by_number(batch_inputs(tables, config, last.batch_id)):
            return from_us
        return max(from_us, Progress.of(last.state).expired_us)

    def first(self) -> tuple[Window, int]:
        """Return the range, widened to the stored sessions that cross its edges and by the gap; and how many sessions it has."""
        gap, basis = self._spec.windows.widest_us, self._basis
        crossing = self._stored(basis.from_us - gap, basis.to_us + gap)
        low, high, count = crossing.agg(F.min("start_us"), F.max("end_us"), F.count("*")).collect()[0]
        low = min(basis.from_us, basis.from_us if low is None else low)
        high = max(basis.to_us, basis.to_us if high is None else high)
        return Window(low - gap - 1, high + gap + 1), count

    def wider(self, window: Window, step: int, *, low: bool, high: bool) -> Window:
        """Return twice as much with each step."""
        more = (window.high - window.low + self._spec.windows.widest_us) << step
        return Window(window.low - more if low else window.low, window.high + more if high else window.high)

    def pieces(self, needed: Sequence[BatchInputs]) -> tuple[Pieces, Pieces]:
        """Return how rows become partials; the batches' inputs go to every task."""
        by_batch = {i.batch_id: (i, self._before.get(i.batch_id)) for i in needed}
        return partial(archived_pieces, self._spec, by_batch), partial(source_pieces, self._spec, by_batch)

    @cached_property
    def _before(self) -> Mapping[int, Progress]:
        """How far sessions were closed before each batch, if that does not follow from its watermark."""
        inputs = self._basis.inputs
        return progress_before(inputs) if self._spec.emit is not None or by_number(inputs) else {}

    def lifted(self) -> Callable[[Events], Partials]:
        """Return partials at the events' times."""
        return partial(_lifted, self._spec)

    def restated(self) -> Callable[[Partials, pa.Array | None], Partials]:
        """Return the function that completes restated partials: it adds until when they are open."""
        return partial(_restated, self._spec)

    def late(self, late: DataFrame) -> DataFrame:
        """Return all late events: only the table says which events were judged late."""
        return late

    def others(self, window: Window) -> Iterator[tuple[str, DataFrame]]:
        """Yield the stored sessions around the window, and the removed ones that meet it."""
        gap, basis = self._spec.windows.widest_us, self._basis
        yield STORED, self._stored(window.low - gap, window.high + gap)
        tables = basis.tables
        foreign = "kind = 'tombstone' or kind = 'replace' and not (job <=> 'backfill')"
        tombstones = _topic_tombstones(tables, basis.inputs[-1].batch_id)
        there = not tables[schemas.CORRECTIONS].read().where(foreign).isEmpty()
        if there or not (tombstones is None or tombstones.isEmpty()):
            changes = tables[self._state.changes].read(basis.pinned["versions"][self._state.changes])
            changes = changes.where(F.col(BATCH) <= basis.pinned["batch_id"])
            gone = removals(
                basis.applied, _as_sessions(changes, self._state), None if tombstones is None else _expired(tombstones)
            )
            ends = F.col("end_us").isNull() | (F.col("end_us") >= window.low)
            yield REMOVED, gone.where(ends & (F.col("start_us") <= window.high))

    def compare(self, window: Window) -> Callable[[Inputs], Difference]:
        """Return the comparison of sessions that have a time in the range."""
        basis = self._basis
        marked = self._spec.emit is not None
        scope = Scope(self._spec.windows, basis.from_us, basis.to_us, window, basis.forgotten, marked)
        return partial(compare, self._spec.aggregates, scope)

    def _stored(self, low_us: int, high_us: int) -> DataFrame:
        """Return the stored sessions with a time in [low_us, high_us], as of the pinned batch."""
        of, pinned = self._state, self._basis.pinned
        rows = rows_meeting(
            self._basis.tables,
            low_us,
            high_us,
            of=of,
            snapshot_version=pinned["versions"][of.snapshot],
            changelog_version=pinned["versions"][of.changes],
            # A state of its own is committed before its batch is.
            until=pinned["batch_id"],
        )
        return engine_rows(rows, of)


def archived_pieces(spec: SessionizerSpec, by_batch: _Judges, table: pa.Table) -> Iterator[Piece]:
    """Yield archived events as the stream's mapper splits them: merged, or single if they may have been late."""
    batch = table[BATCH].to_numpy()
    for batch_id in np.unique(batch).tolist():
        some = table.filter(pa.array(batch == batch_id)).combine_chunks()
        live, bounds = bounds_of(spec, *by_batch[batch_id])
        events = events_of(spec.events, some)
        until = open_until(spec, events)
        merged, alone = premerge(
            spec.aggregates, events, spec.windows, bounds.open_us, until, finals_last=live.finals_last
        )
        yield batch_id, MERGED, merged
        yield batch_id, ALONE, lift(spec.aggregates, events, until).take(np.flatnonzero(alone))


def source_pieces(spec: SessionizerSpec, by_batch: _Judges, table: pa.Table) -> Iterator[Piece]:
    """Yield the rows that their batches did not refuse, read and judged by the stream's own mapper.

    MERGED rows were always accepted, ALONE rows are single events that may have been late.
    """
    for batch_id, rows in read_again(spec.events, table, lambda batch_id: by_batch[batch_id][0]):
        inputs, before = by_batch[batch_id]
        live, bounds = bounds_of(spec, inputs, before)
        live = replace(live, events=replace(live.events, archive=False))
        for piece in split_events(live, bounds, inputs.clock_us, rows):
            if not isinstance(piece, Keyed):
                continue
            if piece.kind == MERGED:
                yield batch_id, MERGED, Partials.from_table(piece.rows)
            elif piece.kind == ALONE:
                until = piece.rows[UNTIL].to_numpy() if UNTIL in piece.rows.column_names else None
                yield batch_id, ALONE, lift(spec.aggregates, events_of(spec.events, piece.rows), until)


def bounds_of(
    spec: SessionizerSpec, inputs: BatchInputs, progress: Progress | None = None
) -> tuple[SessionizerSpec, Bounds]:
    """Return the spec under the settings of a batch, and the times that decided about it; `progress` is that before it, if it decides."""
    live = spec.under(inputs.settings)
    if progress is not None:
        return live, live.windows.bounds_at(progress)
    before = NO_WATERMARK if inputs.watermark_before_us is None else inputs.watermark_before_us
    return live, live.windows.bounds(before)


def _lifted(spec: SessionizerSpec, events: Events) -> Partials:
    return lift(spec.aggregates, events, open_until(spec, events))


def _restated(spec: SessionizerSpec, partials: Partials, until: pa.Array | None) -> Partials:
    return replace(partials, until=known_until(spec.windows, partials.end, until))


def removals(corrections: DataFrame, changes: DataFrame, expired: DataFrame | None = None) -> DataFrame:
    """Return sessions that were removed on purpose: key, start_us, end_us (null if not known any more), batch_id.

    Tombstones, replacements that put nothing, and the sessions that [ttl] removed, `expired`; a replacement by a backfill is of the events. The end is
    that of the changelog's row at the revision that was removed, or else of the delete that the removal made.
    """
    size = F.coalesce(F.size("put"), F.lit(0))
    by_events = F.coalesce(F.col("job"), F.lit("")) == "backfill"
    emptied = corrections.where((F.col("kind") == "replace") & (size <= 0) & ~by_events)
    named = emptied.select("key", F.explode("remove").alias("_r"), BATCH)
    columns = ["key", "start_time", "revision", BATCH]
    removed = named.select("key", "_r.start_time", "_r.revision", BATCH).unionByName(
        corrections.where("kind = 'tombstone'").select(*columns)
    )
    removed = removed if expired is None else removed.unionByName(expired)
    removed = removed.withColumnsRenamed({"key": "session_key", "start_time": "session_start"})
    at = list(SESSIONS.identity)
    # Only the few rows of removed sessions go into the joins that need a shuffle.
    around = changes.join(F.broadcast(removed.select(*at).distinct()), at, "left_semi")
    upserts = around.where("op = 'upsert'").select(
        *at, F.col(BATCH).alias("revision"), F.col("session_end").alias("_end")
    )
    deletes = around.where("op = 'delete'").select(*at, BATCH, F.col("session_end").alias("_deleted_end"))
    known = removed.join(upserts, [*at, "revision"], "left").join(deletes, [*at, BATCH], "left")
    return known.select(
        F.col("session_key").alias("key"),
        F.unix_micros("session_start").alias("start_us"),
        F.unix_micros(F.coalesce("_end", "_deleted_end")).alias("end_us"),
        BATCH,
    )


def _as_sessions(changes: DataFrame, of: Changelog) -> DataFrame:
    """Return changes of the state with the names of columns that sessions have."""
    names = {of.key: SESSIONS.key, of.start: SESSIONS.start, of.end: SESSIONS.end}
    return changes if of == SESSIONS else changes.withColumnsRenamed(names)


def _topic_tombstones(tables: Tables, up_to: int) -> DataFrame | None:
    """Return the tombstones that batches up to one read from the topic, and those of [ttl]; None without an archive and [ttl]."""
    table = tables[schemas.TOPIC_TOMBSTONES]
    return table.read().where(F.col(BATCH) <= up_to) if table.exists() else None


def _expired(tombstones: DataFrame) -> DataFrame:
    return tombstones.where(F.col("correction_id") == TTL).drop("correction_id", "commit_id")
