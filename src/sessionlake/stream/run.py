"""Run the sessionizer: until stopped, or over all available input."""

import logging
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake import errors, schemas
from sessionlake.batches import batch_row, check_history, find_last_batch
from sessionlake.config.load import Config
from sessionlake.engine.coordinator import Coordinator
from sessionlake.engine.erasure import remove_all_marked
from sessionlake.errors import PipelineStateError, SessionlakeError, StoreError
from sessionlake.jobs.sessionizer.operator import WATERMARK, watermark_of
from sessionlake.jobs.sessionizer.pipeline import make_pipeline
from sessionlake.jobs.sessionizer.setup import build_spec, check_settings, create_tables
from sessionlake.jobs.sessionizer.stream import ControlInput, read_inputs
from sessionlake.sources import kafka_cluster as kafka
from sessionlake.sources.kafka import check_topic
from sessionlake.sources.planned_files import PlannedFiles
from sessionlake.stream.clock import check_batch_clock, check_clock
from sessionlake.stream.input_log import InputLog
from sessionlake.stream.lock import checkpoint_id, locked_store
from sessionlake.stream.planned import PlannedOffsets, fingerprint
from sessionlake.stream.queries import is_second_driver, run_to_end
from sessionlake.stream.replan import replan
from sessionlake.views import merged_sessions
from sessionlake.warehouse.tables import Tables

_BATCHES_EVERY = 50
_log = logging.getLogger("sessionlake")

OnCommit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class RunSummary:
    """What a run did: batches committed, their counts added up, and what a user should know."""

    batches: int
    counts: dict[str, int]
    watermark_us: int | None
    warnings: list[str]


def run(
    spark: SparkSession,
    config: Config,
    *,
    once: bool = False,
    drain: bool = False,
    bootstrap: bool = False,
    trust_clock: bool = False,
    give_up_plan: bool = False,
    on_commit: OnCommit | None = None,
) -> RunSummary:
    """Run until stopped or, with `once`, until all input that is available now is committed.

    `drain` then closes what is open: it moves the watermark past every session's close time. `bootstrap` takes all
    input in one batch, for first use on old data: nothing is late before the first watermark.
    A clock behind the last commit's is refused unless `trust_clock` says that the latter was wrong. `give_up_plan` makes
    the batch that was planned but not committed anew, under the limits that the config has now.
    """
    with locked_store(config):
        session = _Session(spark, config, trust_clock=trust_clock)
        if bootstrap and session.coordinator.last is not None:
            raise PipelineStateError(
                f"bootstrap: pipeline {config.pipeline.name!r} has committed batches already; bootstrap a new warehouse, or go on with `sessionlake run`"
            )
        if give_up_plan:
            for note in replan(session.tables, config, session.coordinator.last):
                _log.warning("sessionlake: %s", note)
        session.coordinator.on_commit = lambda metadata: session.committed(metadata, on_commit)
        try:
            session.stream(once=once or bootstrap, everything_at_once=bootstrap)
            if drain and session.advance_past_open_sessions():
                session.stream(once=True)
        except KeyboardInterrupt:
            session.save_batches()
            raise
        session.save_batches()
        return session.summary()


class _Session:
    """One run of one pipeline."""

    def __init__(self, spark: SparkSession, config: Config, *, trust_clock: bool) -> None:
        self.spark, self.config, self.trust_clock = spark, config, trust_clock
        self.tables = Tables(spark, config.pipeline.warehouse)
        if config.source.kind == "kafka":
            check_topic(spark, config.source)
        last = find_last_batch(self.tables)
        check_history(self.tables)
        if not trust_clock:
            check_clock(last.metadata if last else None)
        check_settings(config, last.metadata if last else None)
        self.spec = build_spec(spark, config, last.metadata["settings"]["types"] if last else None)
        create_tables(self.tables, config, self.spec)
        checkpoint = checkpoint_id(self.tables, config, last.metadata if last else None)
        self.coordinator = Coordinator(spark, self.tables, make_pipeline(self.tables, config, self.spec, checkpoint))
        self.batches = 0
        self._batch_runs = threading.Lock()
        self.inputs = InputLog(self.tables, config)

    def stream(self, *, once: bool, everything_at_once: bool = False) -> None:
        """Run the streaming query to its end."""
        failures: list[BaseException] = []
        files = PlannedFiles(self.tables, self.config) if self.config.source.kind == "files" else None
        planned = PlannedOffsets(self.spark, self.config.pipeline.name)
        control = ControlInput(self.tables, self.config)

        def run_batch(rows: DataFrame, batch_id: int) -> None:
            try:
                offsets = self.tables.read_text(f"{self.config.checkpoint}/offsets/{batch_id}")
                planned.check(batch_id, offsets)
                if not self.trust_clock:
                    check_batch_clock(offsets, self.coordinator.last, batch_id)
                with self._batch_runs:
                    rows = control.rows(rows, batch_id, offsets)
                    rows = files.rows(rows, batch_id, offsets) if files else rows
                    self.coordinator.run_batch(rows, batch_id, fingerprint(offsets))
                    remove_all_marked(Path(self.config.driver_store_dir))
            except BaseException as error:
                failures.append(error)
                raise

        inputs = read_inputs(self.tables, self.config, self.spec, everything_at_once=everything_at_once)
        writer = (
            inputs.writeStream.foreachBatch(run_batch)
            .option("checkpointLocation", self.config.checkpoint)
            .queryName(self.config.pipeline.name)
        )
        self.remove_marked_stores()
        try:
            try:
                run_to_end(self.config, writer, once=once, meanwhile=self.remove_marked_stores)
            except StreamingQueryException as error:
                if failures or not kafka.only_the_report_failed(str(error)):
                    raise
                run_to_end(self.config, writer, once=once, meanwhile=self.remove_marked_stores)
            self.remove_marked_stores()
        except StreamingQueryException as error:
            ours = next((f for f in failures if isinstance(f, SessionlakeError)), None)
            raise (ours or _explained(" ".join(map(str, [error, *failures]))) or error) from error

    def remove_marked_stores(self) -> None:
        """Remove the stores on this machine that a job has marked, unless a batch runs, which does it at its end."""
        if self._batch_runs.acquire(blocking=False):
            try:
                # What can't be removed now keeps its marker: the job that waits for it says so.
                with suppress(StoreError):
                    remove_all_marked(Path(self.config.driver_store_dir))
            finally:
                self._batch_runs.release()

    def committed(self, metadata: dict[str, Any], on_commit: OnCommit | None) -> None:
        """Count a batch, save batches now and then, and tell the caller."""
        self.batches += 1
        self.inputs.committed(metadata["batch_id"])
        # By the batch's id: a run that is killed before it has done as many must not put off all to the next.
        if metadata["batch_id"] % _BATCHES_EVERY == 0:
            self.save_batches()
        if on_commit is not None:
            on_commit(metadata)

    def save_batches(self) -> None:
        """Append to the table batches what the changelog's commits have and it has not."""
        known = self.tables.latest_version(schemas.BATCHES)
        after = self.tables.newest_txn(schemas.BATCHES, schemas.BATCHES)
        if after is None:
            seen = self.tables.read(schemas.BATCHES).agg(F.max("changelog_version")).head()
            after = -1 if seen is None or seen[0] is None else seen[0]
        rows = [batch_row(commit.metadata, commit.version) for commit in self.tables.commits(schemas.CHANGELOG, after)]
        if rows:
            table = pa.Table.from_pylist(rows, schema=schemas.BATCHES_SCHEMA)
            last = rows[-1]["changelog_version"]
            self.tables.append_file(schemas.BATCHES, table, schemas.BATCHES, last, after_version=known)

    def advance_past_open_sessions(self) -> bool:
        """Ask, through the control input, for a watermark at which every session is closed; False where all are."""
        latest = merged_sessions(self.tables).agg(F.max(F.unix_micros("session_end"))).head()
        if latest is None or latest[0] is None:
            return False
        target = latest[0] + self.config.gap_us + self.config.grace_us + 1
        state = self.coordinator.last["state"] if self.coordinator.last else {}
        if watermark_of(state) >= target:
            return False
        row = {
            "correction_id": f"advance-{target}",
            "kind": "advance",
            "session_start": target,
            "job": "drain",
            "created_at": 0,
        }
        table = pa.Table.from_pylist([row], schema=schemas.CORRECTIONS_SCHEMA)
        self.tables.append_rows(schemas.CORRECTIONS, table)
        return True

    def summary(self) -> RunSummary:
        """Return what the run did."""
        counts = {name: self.coordinator.totals.get(name, 0) for name in schemas.COUNTS}
        warnings = []
        refused = counts["late"] + counts["dead"]
        if counts["input"] and refused > 0.05 * counts["input"]:
            warnings.append(
                f"{refused / counts['input']:.0%} of this run's {counts['input']:,} events were late or dead; "
                "raise session.grace, look into late_events and dead_letters, or for old unordered data start with `sessionlake bootstrap`"
            )
        last = self.coordinator.last
        return RunSummary(self.batches, counts, last["state"].get(WATERMARK) if last else None, warnings)


def _explained(text: str) -> SessionlakeError | None:
    """Return what a failed query's messages mean to a user: a second driver, or an error that a worker raised."""
    raised = re.search(r"sessionlake\.errors\.(\w+): (.+)", text)
    if raised and hasattr(errors, raised[1]):
        explained: SessionlakeError = getattr(errors, raised[1])(raised[2])
        return explained
    if is_second_driver(text):
        return PipelineStateError(
            "checkpoint: another driver runs on it; a pipeline has one driver, stop the other one first"
        )
    return kafka.explained(text)
