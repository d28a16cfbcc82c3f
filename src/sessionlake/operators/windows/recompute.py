"""Windows by time computed again, slice by slice: of an event its time alone says which slice it is in, and whether it was late."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.aggregates.base import Events
from sessionlake.aggregates.partials import Partials, lift
from sessionlake.config.load import Config
from sessionlake.engine.operator import Inputs, Keyed
from sessionlake.operators.shared.windowing.emission import Progress
from sessionlake.operators.shared.windowing.replay import by_number, progress_before
from sessionlake.operators.windows.kind import Windows
from sessionlake.operators.windows.mapper import PARTS, parts_of, split_events
from sessionlake.operators.windows.recompute_compare import SENT, SliceScope, compare_slices
from sessionlake.operators.windows.section import WindowSection
from sessionlake.operators.windows.spec import TimeWindows, WindowSpec, slices_are_windows
from sessionlake.operators.windows.table import WINDOWS
from sessionlake.stream.comparison import Difference, correction_schema
from sessionlake.stream.ingest import events_of
from sessionlake.stream.input_log import BatchInputs, batch_inputs
from sessionlake.stream.recompute import INCLUDED, REMOVED, STORED, Basis, Piece, Pieces, Window, read_again
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.streamed_files import BATCH
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows

_Judges = Mapping[int, tuple[BatchInputs, Progress]]


class WindowRecompute:
    """See `Recompute` for the methods."""

    counts: ClassVar[Sequence[str]] = (
        "slices", "unchanged", "corrections", "removed", "put", "sent_again", "late_included", "withheld",
    )  # fmt: skip
    right: ClassVar[str] = "the windows agree with the events"

    def __init__(self, kind: Windows, basis: Basis) -> None:
        spec = kind.spec
        self._spec, self._state, self._basis = spec, kind.changelogs[0], basis
        self.operator, self.aggregates, self.events = kind.operator(), spec.aggregates, spec.events
        self.schema = correction_schema()
        asked = spec.windows.slices_of(np.array([basis.from_us, basis.to_us - 1]))
        self._low, self._high = int(asked[0]), int(asked[1]) + spec.windows.slice_us

    @classmethod
    def earliest(cls, config: Config, tables: Tables, last: BatchCommit, from_us: int) -> int:
        """Return the end of the slice that retention cuts, if windows share slices or retention is by number, and it is not before.

        If windows share slices, those that begin before retention have left the stores, or soon will, and windows with them can't be
        made whole. With a retention by number of events only the batch knew which older events were late or refused; of events
        in retention now, no batch judged one by it.
        """
        windows = cast("WindowSection", config.section).windows
        if slices_are_windows(windows) and not by_number(batch_inputs(tables, config, last.batch_id)):
            return from_us
        before, asked = np.array([Progress.of(last.state).expired_us - 1]), np.array([from_us])
        first = int(windows.slices_of(before)[0]) + windows.slice_us
        return max(from_us, first) if int(windows.slices_of(asked)[0]) < first else from_us

    def first(self) -> tuple[Window, int]:
        """Return the range, widened to whole slices; and how many are stored in it and around."""
        return Window(self._low, self._high - 1), self._stored().count()

    def wider(self, window: Window, step: int, *, low: bool, high: bool) -> Window:
        """Return the range unchanged: a slice never extends beyond it."""
        del step, low, high
        return window

    def pieces(self, needed: Sequence[BatchInputs]) -> tuple[Pieces, Pieces]:
        """Return how rows become parts of slices; how far the pipeline was before each batch goes to every task."""
        judges = {i.batch_id: (i, self._before[i.batch_id]) for i in needed}
        return partial(_archived, self._spec, judges), partial(_read, self._spec, judges)

    def lifted(self) -> Callable[[Events], Partials]:
        """Return the function that merges events into their slices."""
        return partial(_lifted, self._spec)

    def restated(self) -> Callable[[Partials, pa.Array | None], Partials]:
        """Return the function that puts parts into their slices; each part has a time in its slice."""
        return partial(_placed, self._spec.windows)

    def late(self, late: DataFrame) -> DataFrame:
        """Return the late events: the recompute judges again which events were late."""
        return late.where(INCLUDED)

    def others(self, window: Window) -> Iterator[tuple[str, DataFrame]]:
        """Yield the stored slices, the windows that were sent, and those whose rows tombstones have deleted."""
        del window
        yield STORED, self._stored()
        yield REMOVED, self._removed()
        if not self._spec.rows_are_state:
            yield SENT, self._sent()

    def compare(self, window: Window) -> Callable[[Inputs], Difference]:
        """Return the comparison of slices in the range, and of the closed windows that have one."""
        del window
        basis, spec = self._basis, self._spec
        scope = SliceScope(
            spec.windows,
            self._low,
            self._high,
            Progress.of(basis.pinned["state"]).close_us,
            basis.pinned["batch_id"],
            spec.rows_are_state,
            basis.forgotten,
        )
        return partial(compare_slices, spec.aggregates, scope)

    @cached_property
    def _before(self) -> Mapping[int, Progress]:
        """The progress before each batch, without the effects of a retention by number; see `earliest`."""
        return progress_before(self._basis.inputs)

    def _stored(self) -> DataFrame:
        """Return the slices of the range and a window's length around it, as of the pinned batch."""
        of, slice_us = self._state, self._spec.windows.slice_us
        start = F.unix_micros(of.start)
        span = self._spec.windows.span_us
        rows = self._as_pinned(of, self._low - span, self._high + span)
        return rows.select(
            F.col(of.key).alias("key"),
            start.alias("start_us"),
            (start + slice_us - 1).alias("end_us"),
            "event_count",
            "revision",
            "state",
        )

    def _sent(self) -> DataFrame:
        """Return the windows that may have a slice of the range, as they were sent last."""
        rows = self._as_pinned(WINDOWS, self._low - self._spec.windows.span_us, self._high + 1)
        values = [F.col(aggregate.name).alias(f"v{i}") for i, aggregate in enumerate(self.aggregates)]
        key, start = F.col(WINDOWS.key).alias("key"), F.unix_micros(WINDOWS.start).alias("start_us")
        return rows.select(key, start, "event_count", *values)

    def _removed(self) -> DataFrame:
        """Return the windows that tombstones have named, and the batches that took these."""
        span, start = self._spec.windows.span_us, F.unix_micros("start_time")
        rows = self._basis.applied.where("kind = 'tombstone'").where(
            start.between(self._low - 2 * span, self._high + span)
        )
        return rows.select(F.col("key").alias("key"), start.alias("start_us"), BATCH)

    def _as_pinned(self, of: Changelog, low_us: int, high_us: int) -> DataFrame:
        versions, start = self._basis.pinned["versions"], F.unix_micros(of.start)
        return merged_rows(
            self._basis.tables,
            of=of,
            snapshot_version=versions[of.snapshot],
            changelog_version=versions[of.changes],
            # Slices are committed before their batch is.
            until=self._basis.pinned["batch_id"],
            narrowed=lambda rows: rows.where((start >= low_us) & (start < high_us)),
        )


def _archived(spec: WindowSpec, judges: _Judges, table: pa.Table) -> Iterator[Piece]:
    """Yield archived events as the stream's mapper parts them; those that were late are among them, and left out."""
    batch = table[BATCH].to_numpy()
    for batch_id in np.unique(batch).tolist():
        time = table["time_us"].to_numpy()
        late = spec.windows.last_end(spec.windows.slices_of(time)) <= judges[batch_id][1].close_us
        some = table.filter(pa.array((batch == batch_id) & ~late)).combine_chunks()
        yield batch_id, PARTS, parts_of(spec, events_of(spec.events, some))


def _read(spec: WindowSpec, judges: _Judges, table: pa.Table) -> Iterator[Piece]:
    """Yield the rows that their batches accepted, read and judged by the stream's own mapper."""
    for batch_id, rows in read_again(spec.events, table, lambda batch_id: judges[batch_id][0]):
        inputs, before = judges[batch_id]
        live = spec.under(inputs.settings)
        live = replace(live, events=replace(live.events, archive=False))
        for piece in split_events(live, before, inputs.clock_us, rows):
            if isinstance(piece, Keyed):
                yield batch_id, PARTS, Partials.from_table(piece.rows)


def _lifted(spec: WindowSpec, events: Events) -> Partials:
    return _placed(spec.windows, lift(spec.aggregates, events))


def _placed(windows: TimeWindows, parts: Partials, until: pa.Array | None = None) -> Partials:
    del until
    start = windows.slices_of(parts.start)
    return replace(parts, start=start, end=start + windows.slice_us - 1)
