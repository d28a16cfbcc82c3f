"""The loop of every stream, which knows no operator: until stopped, or over all available input."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.checks import check_remembered
from sessionlake.config.load import Config
from sessionlake.engine.coordinator import Coordinator
from sessionlake.engine.error_text import error_in
from sessionlake.engine.operator import add_stats
from sessionlake.engine.pending import remove_all_marked
from sessionlake.engine.watching import within
from sessionlake.errors import FencedError, OverdueError, PipelineStateError, SessionlakeError, StoreError
from sessionlake.sources import kafka_cluster as kafka
from sessionlake.sources.lookups.lookup import FOUND, MISSING
from sessionlake.sources.lookups.versions import Pins
from sessionlake.sources.registry import sources_of
from sessionlake.stream.causes import by_cause, ordered
from sessionlake.stream.changes import check_changes, taken
from sessionlake.stream.clock import Ticks, check_batch_clock, check_clock
from sessionlake.stream.computed import shaped_as
from sessionlake.stream.control import ADVANCE, FLUSH, TICK
from sessionlake.stream.cuts import check_cut
from sessionlake.stream.ingest import BEYOND
from sessionlake.stream.input_log import InputLog
from sessionlake.stream.inputs import ControlInput, PlannedInputs, read_inputs, versioned
from sessionlake.stream.interrupted import interrupted, replan
from sessionlake.stream.kind import Kind
from sessionlake.stream.kinds import kind_of
from sessionlake.stream.layouts import next_layouts
from sessionlake.stream.lock import check_checkpoint, locked_store, make_checkpoint
from sessionlake.stream.phase import RUNNING, Phase, phases
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.pipeline import make_pipeline
from sessionlake.stream.planned_offsets import PlannedOffsets, clock_of, fingerprint
from sessionlake.stream.queries import answered, is_second_driver, run_to_end
from sessionlake.stream.tables import create_tables
from sessionlake.stream.watermark import watermark_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from sessionlake.warehouse.batches import batches_after, check_history, find_last_batch
from sessionlake.warehouse.grace import grace_told, of_warehouse
from sessionlake.warehouse.tables import Tables, spark_schema

_BATCHES_EVERY = 50
_log = logging.getLogger("sessionlake")

OnCommit = Callable[[BatchCommit], None]
Gate = Callable[[threading.Event], None]
"""Called before each batch, and may wait; the event says that the stream is to end, and so is the waiting."""


@dataclass(frozen=True)
class RunSummary:
    """A run's summary: the number of committed batches, the sums of their counts, and notes for the user."""

    batches: int
    counts: dict[str, int]
    watermark_us: int | None
    warnings: list[str]


def run(
    spark: SparkSession,
    config: Config,
    *,
    kind: type[Kind] | None = None,
    once: bool = False,
    drain: bool = False,
    bootstrap: bool = False,
    trust_clock: bool = False,
    give_up_plan: bool = False,
    allow_expiry: bool = False,
    drop_aggregates: bool = False,
    on_commit: OnCommit | None = None,
    gate: Gate = lambda _: None,
    meanwhile: Callable[[], None] = lambda: None,
    of_job: bool = False,
) -> RunSummary:
    """Run a pipeline until stopped or, with `once`, until all input that is available now is committed.

    `kind` is that of the config's operator, unless a test has its own. `drain` then closes all open results, by moving the watermark. `bootstrap` takes all input in one batch, for first use
    on old data: no event is late before the first watermark. A clock behind the last commit's is refused, unless
    `trust_clock` says that the last commit's clock was wrong. `give_up_plan` plans the uncommitted batch again, with the
    config's current limits. With `allow_expiry` the limits on removals by [ttl] are ignored. `drop_aggregates` drops those that are
    gone from the config. The stream takes no input while `gate` waits. `meanwhile` is called about every second, next to the batches.
    The pass of a job (`of_job`) leaves the phase of the stream before it (`stream.phase`).
    """
    with locked_store(config), phases(config, is_stream=not of_job) as phase:
        current = _Run(
            spark,
            config,
            kind or kind_of(config),
            phase,
            trust_clock=trust_clock,
            allow_expiry=allow_expiry,
            drop_aggregates=drop_aggregates,
            gate=gate,
            meanwhile=meanwhile,
        )
        if bootstrap and current.coordinator.last is not None:
            raise PipelineStateError(
                f"bootstrap: pipeline {config.pipeline.name!r} has committed batches already; bootstrap a new warehouse, or go on with `sessionlake run`"
            )
        if give_up_plan:
            for note in replan(current.tables, config, current.kind_class, current.sources, current.coordinator.last):
                _log.warning("sessionlake: %s", note)
        # A batch of its own: from it on jobs know the aggregates, or the gap, though nothing may come in for long.
        if current.adds:
            current.tick("states", len(current.layouts) - 1)
        elif current.cuts and current.coordinator.last is not None:
            current.tick("cuts", current.coordinator.last.batch_id)
        current.coordinator.on_commit = lambda batch: current.committed(batch, on_commit)
        try:
            current.stream(once=once or bootstrap, everything_at_once=bootstrap)
            if (once or bootstrap) and current.flush():
                current.stream(once=True)
            if drain and current.close_all():
                current.stream(once=True)
        except KeyboardInterrupt:
            current.save_batches()
            raise
        finally:
            current.pins.close()
        current.save_batches()
        return current.summary()


class _EndedError(Exception):
    """The stream is to end: the batch that waited at the gate is computed when it starts again."""


class _Run:
    """A run of a pipeline."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        kind: type[Kind],
        phase: Phase,
        *,
        trust_clock: bool,
        allow_expiry: bool,
        drop_aggregates: bool,
        gate: Gate,
        meanwhile: Callable[[], None],
    ) -> None:
        self.spark, self.config, self.trust_clock, self.gate = spark, config, trust_clock, gate
        self.kind_class = kind
        self.phase, self.meanwhile = phase, meanwhile
        self.tables = Tables.of(spark, config)
        self.sources = sources_of(spark, config)
        for source in self.sources.values():
            source.check()
        last = find_last_batch(self.tables)
        check_history(self.tables, kind.changelogs_in(config))
        if not trust_clock:
            check_clock(last)
        checkpoint = check_checkpoint(self.tables, config, last)
        # An interrupted batch is completed as it began, and so is the batch to compare with.
        before = interrupted(self.tables, config, kind, checkpoint, last) or last
        if (told := grace_told(config, before)) is not None:
            _log.warning("sessionlake: %s", told)
        self.config = config = of_warehouse(config, before)
        check_remembered(config)
        check_changes(config, before, kind.bound_settings(), runs=True, drops=drop_aggregates)
        self.cuts = check_cut(self.tables, config, kind, before)
        for told in taken(config, before, kind.bound_settings()):
            _log.warning("sessionlake: %s", told)
        pinned = Pinned.of(before)
        self.kind = kind.make(config, self.sources, pinned)
        self.layouts = next_layouts(
            pinned, self.kind, config.aggregates, lambda: self._remade(cast("BatchCommit", before).settings)[1]
        )
        self.adds = pinned is not None and self.layouts != pinned.layouts
        self.pins = Pins(spark, self.sources, {name: spec.lookups.each for name, spec in self.kind.inputs.items()})
        # All checks are above: a warehouse that is refused gets no table.
        create_tables(self.tables, config, self.kind, grow=self.adds)
        checkpoint = checkpoint or make_checkpoint(self.tables, config)
        pipeline = make_pipeline(
            self.tables,
            config,
            self.kind,
            checkpoint,
            before=before,
            layouts=self.layouts,
            remade=self._remade,
            allow_expiry=allow_expiry,
            pins=self._pins_of,
        )
        self.coordinator = Coordinator(spark, self.tables, pipeline)
        self._check_still(before, checkpoint)
        for pin, results in versioned(config, self.sources).items():
            # Before Spark refuses another table in the same place in words of its own.
            results.newest(None if last is None else last.pins.get(pin))
        self.batches = 0
        self.causes: dict[str, int] = {}
        """The numbers of dead letters of this run by cause."""
        self._batch_runs, self._ending = threading.Lock(), threading.Event()
        self.inputs = InputLog(self.tables, config)
        self.ticks = Ticks(self.tables, self.kind)

    def _check_still(self, before: BatchCommit | None, checkpoint: str) -> None:
        """Raise FencedError if a batch has been committed since `before` was read: this driver was made for the next batch."""
        last = self.coordinator.last
        now = interrupted(self.tables, self.config, self.kind_class, checkpoint, last) or last
        if now is not None and (before is None or now.commit_id != before.commit_id):
            raise FencedError(
                f"pipeline.warehouse: another driver committed batch {now.batch_id} while this one started; "
                "this one stops, keep only one running on this warehouse"
            )

    def _pins_of(self, before: Mapping[str, str] | None, last: Mapping[str, str]) -> dict[str, str]:
        """Return the versions of looked-up tables, and of versioned sources: see `engine.pipeline.PinsOf`."""
        batch_pins = self.pins.of_batch(before)
        if before is None:
            batch_pins |= {
                pin: source.newest(last.get(pin)) for pin, source in versioned(self.config, self.sources).items()
            }
        return batch_pins

    def _remade(self, settings: Settings) -> tuple[Config, Kind]:
        """Return the config with the aggregates, the computed columns and the `where` of a batch, and its kind."""
        pinned = Pinned.of_settings(settings, -1)
        section = self.config.section.model_copy(update={"aggregates": dict(pinned.texts)})
        config = shaped_as(self.config.model_copy(update={"section": section}), settings)
        return config, self.kind_class.make(config, self.sources, pinned)

    def stream(self, *, once: bool, everything_at_once: bool = False) -> None:
        """Run the streaming query to its end."""
        failures: list[BaseException] = []
        events = PlannedInputs(self.tables, self.config, self.sources, self.kind.inputs)
        ranked = {name: source.ranked(self.tables) for name, source in self.sources.items()}
        planned = PlannedOffsets(self.spark, self.config.pipeline.name)
        control = ControlInput(self.tables, self.config, self.sources)

        def run_batch(rows: DataFrame, batch_id: int) -> None:
            try:
                offsets = self.tables.read_text(f"{self.config.checkpoint}/offsets/{batch_id}")
                planned.check(batch_id, offsets)
                if not self.trust_clock:
                    check_batch_clock(offsets, self.coordinator.last, batch_id)
                self.gate(self._ending)
                if self._ending.is_set():
                    raise _EndedError
                with self._batch_runs:
                    planned_rows = events.rows(control.rows(rows, batch_id, offsets), batch_id, offsets)
                    is_small = events.is_small and not control.has_rows
                    last = self.coordinator.last
                    pinned = partial(events.with_versions, planned_rows, {} if last is None else last.pins)
                    numbered = ranked if self.kind.numbers_messages else {}
                    files = {name: order.ranks(batch_id) for name, order in numbered.items() if order is not None}
                    with nullcontext() if everything_at_once else self._in_time(batch_id):
                        self.coordinator.run_batch(
                            pinned, batch_id, fingerprint(offsets), clock_of(offsets), files, is_small=is_small
                        )
                    remove_all_marked(Path(self.config.driver_store_dir))
            except BaseException as error:
                failures.append(error)
                raise

        def query() -> None:
            # Made for each query: Spark's reader of a table keeps the columns that it had then.
            inputs = read_inputs(self.tables, self.sources, self.kind.inputs, everything_at_once=everything_at_once)
            with answered(run_batch) as batch:
                writer = (
                    inputs.writeStream.foreachBatch(batch)
                    .option("checkpointLocation", self.config.checkpoint)
                    .queryName(self.config.pipeline.name)
                )
                run_to_end(
                    self.config,
                    writer,
                    once=once,
                    meanwhile=self.while_idle,
                    waits=partial(self.phase.reached, RUNNING),
                    ending=self._ending,
                )

        self.remove_marked_stores()
        try:
            self._started_again(query, failures)
            self.remove_marked_stores()
        except StreamingQueryException as error:
            ours = next((f for f in failures if isinstance(f, SessionlakeError)), None)
            raise (ours or self._explained(" ".join(map(str, [error, *failures]))) or error) from error

    def _in_time(self, batch_id: int) -> AbstractContextManager[None]:
        """Cancel a batch that takes too long, and raise OverdueError then."""
        limit_us, written = self.config.pipeline.batch_timeout_us, self.config.pipeline.batch_timeout
        if limit_us is None:
            return nullcontext()
        error = OverdueError(
            f"pipeline.batch_timeout: batch {batch_id} was not done after {written!r}, and was cancelled; the next start computes it again: "
            "mend the input or the code that holds it up, or write a longer time"
        )
        return within(self.spark, limit_us / 1_000_000, error)

    def _started_again(self, query: Callable[[], None], failures: list[BaseException]) -> None:
        """Run a query, and again if it ended by nothing that is wrong; not if no batch was committed since it was last started again."""
        before: int | None = None
        while True:
            try:
                query()
            except StreamingQueryException as error:
                text = str(error)
                harmless = kafka.only_the_report_failed(text) or any(s.grew(text) for s in self.sources.values())
                if failures or before == self.batches or not harmless:
                    raise
                before = self.batches
            else:
                return

    def while_idle(self) -> None:
        """Do the work that must run between batches, then the work that may run next to a batch."""
        self.remove_marked_stores()
        for source in self.sources.values():
            source.watch()
        self.pins.refresh()
        last = self.coordinator.last
        if last is not None and self._batch_runs.acquire(blocking=False):
            try:
                self.ticks.wake(dict(last.state))
            finally:
                self._batch_runs.release()
        self.meanwhile()

    def remove_marked_stores(self) -> None:
        """Remove this machine's stores that a job has marked, unless a batch runs, which does this at its end."""
        if self._batch_runs.acquire(blocking=False):
            try:
                # A store that can't be removed now keeps its marker, which the waiting job reports.
                with suppress(StoreError):
                    remove_all_marked(Path(self.config.driver_store_dir))
                self.pins.erase_marked()
            finally:
                self._batch_runs.release()

    def committed(self, batch: BatchCommit, on_commit: OnCommit | None) -> None:
        """Count a batch, save the batches from time to time, and notify the caller."""
        self.batches += 1
        self.phase.reached(RUNNING)
        add_stats(self.causes, by_cause(self.coordinator.stats))
        self.inputs.committed(batch.batch_id)
        # By the batch's id, not by a count in this run: if every run is killed after a few batches, they are still saved.
        if batch.batch_id % _BATCHES_EVERY == 0:
            self.save_batches()
        if on_commit is not None:
            on_commit(batch)

    def save_batches(self) -> None:
        """Append missing batches to the table batches."""
        save_batches(self.tables)

    def close_all(self) -> bool:
        """Ask, through the control input, for a watermark at which all is closed; False if all is."""
        closing = self.kind.closing_watermark
        target = None if closing is None else closing(self.tables)
        state = self.coordinator.last.state if self.coordinator.last else {}
        if target is None or watermark_of(state) >= target:
            return False
        self._ask(correction_id=f"advance-{target}", kind=ADVANCE, start_time=target, job="drain")
        return True

    def flush(self) -> bool:
        """Ask, through the control input, to send results that wait for a period of the clock; False if none wait."""
        last = self.coordinator.last
        if last is None or self.kind.due_us(dict(last.state)) is None:
            return False
        self._ask(correction_id=f"flush-{last.batch_id}", kind=FLUSH, job="run")
        return True

    def tick(self, why: str, number: int) -> None:
        """Ask, through the control input, for a batch under the new config; once for each reason and number, however often a start is tried."""
        row = {"correction_id": f"tick-{why}-{number}", "kind": TICK, "job": "run", "created_at": 0}
        rows = pa.Table.from_pylist([row], schema=schemas.CORRECTIONS_SCHEMA)
        frame = self.spark.createDataFrame(rows, spark_schema(rows.schema))
        self.tables[schemas.CORRECTIONS].append(frame, why, number)

    def _explained(self, text: str) -> SessionlakeError | None:
        """Return the user's error behind a failed query's messages: a worker's, a second driver's, or a source's."""
        if (ours := error_in(text)) is not None:
            return ours
        if is_second_driver(text):
            return FencedError(
                "checkpoint: another driver runs on it; a pipeline has one driver, stop the other one first"
            )
        return next(filter(None, (source.explained(text) for source in self.sources.values())), None)

    def _ask(self, **correction: Any) -> None:
        table = pa.Table.from_pylist(
            [{**correction, "created_at": 0}], schema=schemas.corrections(until=self.config.section.facts.keeps_until)
        )
        self.tables[schemas.CORRECTIONS].append_rows(table)

    def _unfound(self) -> Iterator[str]:
        """Yield a warning for each lookup that found no row at all."""
        for spec in self.kind.inputs.values():
            for lookup in spec.lookups.each:
                found, missing = (self.coordinator.totals.get(f"{name}:{lookup.name}", 0) for name in (FOUND, MISSING))
                if missing and not found:
                    yield f"none of {missing:,} events found a row in lookup {lookup.name!r}; compare its columns of `on`, {', '.join(lookup.on)}, with the table's"

    def _not_taken(self, counts: Mapping[str, int]) -> Iterator[str]:
        """Yield a warning if more than one event in twenty was late, and another if as many were dead. A longer wait helps only late events."""
        old = "for old unordered data start with `sessionlake bootstrap`"
        late = f"raise {self.config.operator}.{self.config.section.PATIENCE}, look into late_events, or {old}"
        cause, count = next(iter(ordered(self.causes).items()), ("", 0))
        most = f", {count:,} of them: {cause}" if cause else ""
        dead = f"look into dead_letters{f', or {old}' if cause == BEYOND else ''}"
        for what, told, remedy in (("late", "", late), ("dead", most, dead)):
            if counts[what] > 0.05 * counts["input"]:
                yield f"{counts[what] / counts['input']:.0%} of this run's {counts['input']:,} events were {what}{told}; {remedy}"

    def summary(self) -> RunSummary:
        """Return the run's summary."""
        counts = {name: self.coordinator.totals.get(name, 0) for name in schemas.COUNTS}
        warnings = [*self._not_taken(counts), *self._unfound()]
        last = self.coordinator.last
        return RunSummary(self.batches, counts, last.watermark_us if last else None, warnings)


def save_batches(tables: Tables) -> None:
    """Append batches of the changelog's commits that the table batches lacks."""
    table, more = tables[schemas.BATCHES], tables.changelog.counts
    schema = schemas.batches(more)
    table.grow(schema)
    known, after = table.latest_version(), table.newest_txn(schemas.BATCHES)
    if after is None:
        seen = table.read().agg(F.max("changelog_version")).head()
        after = -1 if seen is None or seen[0] is None else seen[0]
    rows = [batch.row(more) for batch in batches_after(tables, after)]
    if rows:
        last = rows[-1]["changelog_version"]
        table.append_file(pa.Table.from_pylist(rows, schema=schema), schemas.BATCHES, last, after_version=known)
