"""Sessions computed again: a session may reach as far as a chain of events does, so what is read grows until none goes on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.aggregates import Events
from sessionlake.aggregates.partials import Partials, lift
from sessionlake.columnar.records import UNTIL
from sessionlake.engine.operator import Inputs, Keyed
from sessionlake.jobs.backfill.compare import REMOVED, STORED, Scope, compare
from sessionlake.jobs.backfill.events import Piece, Pieces, Window
from sessionlake.jobs.backfill.ledger import expired_sessions, removals, topic_tombstones
from sessionlake.jobs.backfill.way import Basis, Difference, correction_schema
from sessionlake.operators.sessions.gaps import open_until
from sessionlake.operators.sessions.kernel import known_until, premerge
from sessionlake.operators.sessions.kind import engine_rows
from sessionlake.operators.sessions.mapper import ALONE, MERGED, split_events
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.stream.ingest import events_of
from sessionlake.stream.input_log import BatchInputs
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse import schemas
from sessionlake.warehouse.streamed_files import BATCH
from sessionlake.warehouse.views import rows_meeting


class SessionsAgain:
    """See `Way` for the methods."""

    counts: ClassVar[Sequence[str]] = (
        "sessions", "unchanged", "corrections", "removed", "put", "late_included", "withheld",
    )  # fmt: skip
    right: ClassVar[str] = "the sessions are what the events say"

    def __init__(self, spec: SessionizerSpec, basis: Basis) -> None:
        self._spec, self._basis = spec, basis
        self.aggregates, self.events = spec.aggregates, spec.events
        self.schema = correction_schema(until=spec.windows.keeps_until)

    def first(self) -> tuple[Window, int]:
        """Return the range, widened to the stored sessions that cross its edges and by the gap; and how many sessions it has."""
        gap, asked = self._spec.windows.widest_us, self._basis.asked
        crossing = self._stored(asked.from_us - gap, asked.to_us + gap)
        low, high, count = crossing.agg(F.min("start_us"), F.max("end_us"), F.count("*")).collect()[0]
        low = min(asked.from_us, asked.from_us if low is None else low)
        high = max(asked.to_us, asked.to_us if high is None else high)
        return Window(low - gap - 1, high + gap + 1), count

    def wider(self, window: Window, step: int, *, low: bool, high: bool) -> Window:
        """Return twice as much with each step."""
        more = (window.high - window.low + self._spec.windows.widest_us) << step
        return Window(window.low - more if low else window.low, window.high + more if high else window.high)

    def pieces(self, needed: Sequence[BatchInputs]) -> tuple[Pieces, Pieces]:
        """Return how rows become partials; the batches' inputs go to every task."""
        by_batch = {i.batch_id: i for i in needed}
        return partial(archived_pieces, self._spec, by_batch), partial(source_pieces, self._spec, by_batch)

    def lifted(self) -> Callable[[Events], Partials]:
        """Return partials at the events' times."""
        return partial(_lifted, self._spec)

    def restated(self) -> Callable[[Partials, pa.Array | None], Partials]:
        """Return partials where they say."""
        return partial(_restated, self._spec)

    def late(self, late: DataFrame) -> DataFrame:
        """Return all: which events were judged late, only the table tells."""
        return late

    def others(self, window: Window) -> Iterator[tuple[str, DataFrame]]:
        """Yield the stored sessions around the window, and the removed ones that meet it."""
        gap, basis = self._spec.windows.widest_us, self._basis
        yield STORED, self._stored(window.low - gap, window.high + gap)
        tables = basis.tables
        foreign = "kind = 'tombstone' or kind = 'replace' and not (job <=> 'backfill')"
        topical = topic_tombstones(tables, basis.inputs[-1].batch_id)
        expired = expired_sessions(tables, basis.inputs[-1].batch_id)
        there = not tables[schemas.CORRECTIONS].read().where(foreign).isEmpty()
        if there or any(rows is not None and not rows.isEmpty() for rows in (topical, expired)):
            gone = removals(basis.applied, tables[schemas.CHANGELOG].read(basis.pinned["changelog_version"]), expired)
            ends = F.col("end_us").isNull() | (F.col("end_us") >= window.low)
            yield REMOVED, gone.where(ends & (F.col("start_us") <= window.high))

    def compare(self, window: Window) -> Callable[[Inputs], Difference]:
        """Return the comparison of sessions that have a time in the range."""
        asked = self._basis.asked
        scope = Scope(self._spec.windows, asked.from_us, asked.to_us, window, self._basis.forgotten)
        return partial(compare, self._spec.aggregates, scope)

    def _stored(self, low_us: int, high_us: int) -> DataFrame:
        """Return the stored sessions with a time in [low_us, high_us], as of the pinned batch."""
        versions = {name: self._basis.pinned[name] for name in ("snapshot_version", "changelog_version")}
        return engine_rows(rows_meeting(self._basis.tables, low_us, high_us, **versions))


def archived_pieces(spec: SessionizerSpec, by_batch: Mapping[int, BatchInputs], table: pa.Table) -> Iterator[Piece]:
    """Yield archived events as the stream's mapper parts them: merged, or alone where they may have been late."""
    batch = table[BATCH].to_numpy()
    for batch_id in np.unique(batch).tolist():
        some = table.filter(pa.array(batch == batch_id)).combine_chunks()
        _, bounds = bounds_of(spec, by_batch[batch_id])
        events = events_of(spec.events, some)
        until = open_until(spec, events)
        merged, alone = premerge(spec.aggregates, events, spec.windows, bounds.open_us, until)
        yield batch_id, MERGED, merged
        yield batch_id, ALONE, lift(spec.aggregates, events, until).take(np.flatnonzero(alone))


def source_pieces(spec: SessionizerSpec, by_batch: Mapping[int, BatchInputs], table: pa.Table) -> Iterator[Piece]:
    """Yield what the rows' batches did not refuse, read and judged by the stream's own mapper.

    MERGED were accepted whatever they met, ALONE are single events that may have been late.
    """
    for batch_id, rows in spec.events.decoder.decode_again(table):
        live, bounds = bounds_of(spec, by_batch[batch_id])
        live = replace(live, events=replace(live.events, archive=False))
        for piece in split_events(live, bounds, by_batch[batch_id].clock_us, rows):
            if not isinstance(piece, Keyed):
                continue
            if piece.kind == MERGED:
                yield batch_id, MERGED, Partials.from_table(piece.rows)
            elif piece.kind == ALONE:
                until = piece.rows[UNTIL].to_numpy() if UNTIL in piece.rows.column_names else None
                yield batch_id, ALONE, lift(spec.aggregates, events_of(spec.events, piece.rows), until)


def bounds_of(spec: SessionizerSpec, inputs: BatchInputs) -> tuple[SessionizerSpec, Bounds]:
    """Return the spec under the settings of a batch, and the times that decided about it."""
    live = spec.under(inputs.settings)
    before = NO_WATERMARK if inputs.watermark_before_us is None else inputs.watermark_before_us
    return live, live.windows.bounds(before)


def _lifted(spec: SessionizerSpec, events: Events) -> Partials:
    return lift(spec.aggregates, events, open_until(spec, events))


def _restated(spec: SessionizerSpec, partials: Partials, until: pa.Array | None) -> Partials:
    return replace(partials, until=known_until(spec.windows, partials.end, until))
