"""The driver's part of a batch: run the shards, commit the files they wrote, the changelog's last: that is the commit."""

import logging
import secrets
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.columnar.keys import by_shard, shard_of
from sessionlake.columnar.newest import VERSION
from sessionlake.config.paths import expanded
from sessionlake.engine import exchange, failpoints
from sessionlake.engine.exchange import WIRE_DDL
from sessionlake.engine.handed import RESTORE, handed_pieces, merged_pieces, parts_of, place_of
from sessionlake.engine.operator import LOOKUP, BatchContext, counts_of
from sessionlake.engine.outputs import Output
from sessionlake.engine.pipeline import Pipeline
from sessionlake.engine.placement import (
    ExecutorLostError,
    in_one_task,
    is_local,
    on_shards,
    place,
    run_by,
    watched,
)
from sessionlake.engine.reports import Outcome, places_of, read_reports
from sessionlake.engine.shard import LAYOUT, ShardTask
from sessionlake.engine.spark import GENERATED_CODE
from sessionlake.engine.split import SplitTask
from sessionlake.errors import FencedError, PipelineStateError
from sessionlake.warehouse.batch_commit import BatchCommit, layout_of
from sessionlake.warehouse.delta_log import Commit
from sessionlake.warehouse.spark_columns import map_in_arrow
from sessionlake.warehouse.tables import Tables, session_settings, spark_schema

_log = logging.getLogger("sessionlake")
_ATTEMPTS = 5
_LOSSES = 10
_FEW_SHARDS, _FEW_CORES = 8, 2
"""To open a shard's store takes as long as to start a task for it, some 8 ms, and a stage of tasks some 40 ms more. So a stage is worth
that for many shards on many cores alone."""

_LITTLE_STATE = 8 << 20
"""Bytes of a restored state's files up to which Spark finishes sooner without generated code (docs/decisions/0010)."""


@dataclass
class Seen:
    """How far this driver knows a table."""

    version: int
    """Up to it, inclusive, the log was looked at."""
    batch_id: int
    """Last batch that was committed to the table under this pipeline's checkpoint; -1 if none was."""


class Coordinator:
    """Commit a pipeline's batches, one at a time; one instance for each driver."""

    def __init__(self, spark: SparkSession, tables: Tables, pipeline: Pipeline, first: int = 0) -> None:
        """Look at the tables; without a batch, `first` is the first batch's number."""
        self._spark, self._tables, self._pipeline, self._first = spark, tables, pipeline, first
        marks = {output.table: tables[output.table].newest_mark() for output in pipeline.outputs}
        commits = {
            table: mark if mark is not None and "batch_id" in mark.metadata else None for table, mark in marks.items()
        }
        self._seen = {
            table: Seen(-1 if mark is None else mark.version, -1 if commit is None else self._batch_of(commit.metadata))
            for (table, mark), commit in zip(marks.items(), commits.values(), strict=True)
        }
        changelog = pipeline.outputs[-1].table
        last = commits[changelog]
        self.last = None if last is None else BatchCommit.of(last, changelog)
        self._interrupted = self._interrupted_batches(commits)
        self._term: int | None = None
        self.totals: dict[str, int] = {}
        self.stats: Mapping[str, int] = {}
        """The last batch's numbers, and numbers other than counts."""
        self.on_commit: Callable[[BatchCommit], None] = lambda _: None

    def run_batch(
        self,
        rows: Callable[[Mapping[str, str]], DataFrame],
        batch_id: int,
        planned: str | None,
        clock_us: int,
        files: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
        *,
        is_small: bool = False,
    ) -> None:
        """Run and commit a batch; one that is committed already is left alone.

        `rows` returns, given the batch's pins, its input rows, which the operator splits. `planned` is the result of `Pipeline.input_of` before
        the batch runs. The same call is made again before the first commit, and both results must be equal.
        `clock_us` is the batch's time as the stream logged it. `files` is as in BatchContext. `is_small` says that the input is
        so little that one task is to do it all.

        Raises the error with which `Pipeline.checked` refuses the batch. Raises FencedError if another driver committed
        this batch_id, or plans it too, or began its term after this driver. Not every file system keeps a second driver
        from writing the batch's offsets, and the next start would continue from those.
        """
        if self._is_committed(batch_id, planned):
            return
        self._check_interrupted(batch_id, planned)
        started = time.time_ns() // 1000
        commit_id = uuid.uuid4().hex[:16]
        # Start, not commit: the next batch would see a jump if the clock was set forward during the computation.
        last, state = (self.last.started_us, self.last.state) if self.last else (None, {})
        p = self._pipeline_of(batch_id)
        before = self._interrupted.get(batch_id)
        pins = p.pins(None if before is None else before.pins, {} if self.last is None else self.last.pins)
        context = BatchContext(
            batch_id, commit_id, state, clock_us, last, dict(files), pins, keeps_replaced=p.keeps_replaced
        )
        # Terms are needed before the first commit, not before the rows are computed.
        with self._beginning_term():
            outcome = self._compute(p, rows(pins), context, is_small=is_small and self._fits_one_task(p))
        failpoints.hit("computed")
        if p.input_of(batch_id) != planned:
            raise FencedError(
                f"checkpoint: another driver has planned batch {batch_id} of {p.name!r} while this one computed it; "
                "this one stops, keep only one running on this warehouse"
            )
        for note in p.checked(p.operator, dict(context.state), outcome.stats):
            _log.warning("sessionlake: %s", note)
        batch = self._batch(p, context, outcome, started, planned)
        *sides, changelog = p.outputs
        for side in sides:
            if any(file.table == side.table for file in outcome.files):
                failpoints.hit(f"before_{side.kind}")
                self._commit(side, outcome, batch)
                failpoints.hit(f"after_{side.kind}")
        failpoints.hit("before_changelog")
        batch = replace(batch, version=self._commit(changelog, outcome, batch))
        failpoints.hit("after_changelog")
        self.last = batch
        for name, value in batch.counts.items():
            self.totals[name] = self.totals.get(name, 0) + value
        self.stats = outcome.stats
        self.on_commit(batch)

    @contextmanager
    def _beginning_term(self) -> Iterator[None]:
        """Begin this driver's term while the block runs; wait for the block's end, however it ends. An error of the term comes first."""
        if self._term is not None:
            yield
            return
        with ThreadPoolExecutor(1) as pool:
            terms = pool.submit(self._begin_term)
            try:
                yield
            finally:
                terms.result()

    def _begin_term(self) -> None:
        """Begin this driver's term on each table that it writes, before the first batch that it commits.

        Raises FencedError if another driver has committed since this one looked at the tables: what it knows of them is old.
        From here on the drivers before it commit nothing. A start that computes no batch begins no term, and stops nobody.
        """
        term = secrets.randbits(62)
        *sides, changelog = (output for output in self._pipeline.outputs if self._tables[output.table].exists())
        # The changelog first: of two drivers, the later one is then the later one in every table, or in none.
        self._begin_on(changelog, term)
        failpoints.hit("term_begun")
        first = self._seen[changelog.table].version

        def still_ours() -> None:
            self._tables[changelog.table].refuse_other_term(term, first)

        with ThreadPoolExecutor(max(1, len(sides))) as pool:
            for _ in pool.map(lambda side: self._begin_on(side, term, still_ours), sides):
                pass
        self._term = term

    def _begin_on(self, output: Output, term: int, still_ours: Callable[[], None] = lambda: None) -> None:
        """Begin the term on one table."""
        seen = self._seen[output.table]
        seen.version = self._tables[output.table].begin_term(
            term,
            self._pipeline.checkpoint_id,
            seen.batch_id + 1,
            socket.gethostname(),
            after_version=seen.version,
            guarded=output.guarded,
            still_ours=still_ours,
        )

    def _pipeline_of(self, batch_id: int) -> Pipeline:
        """Return the pipeline under the settings of a batch's interrupted attempt, if there was one."""
        before = self._interrupted.get(batch_id)
        settings = self._pipeline.settings if before is None else before.settings
        return self._pipeline if settings == self._pipeline.settings else self._pipeline.under(settings)

    def _is_committed(self, batch_id: int, planned: str | None) -> bool:
        """Say whether the batch is the last committed batch; PipelineStateError if it is neither this nor the next."""
        last = self._first - 1 if self.last is None else self.last.batch_id
        other_input = False
        if batch_id == last and self.last is not None:
            other_input = self.last.input not in (None, planned)
        if batch_id not in (last, last + 1) or other_input:
            older, newer = ("checkpoint", "changelog") if batch_id <= last else ("changelog", "checkpoint")
            raise PipelineStateError(
                f"checkpoint: {self._pipeline.name!r} goes on with batch {batch_id}, but the changelog ends with {last}: "
                f"the {older} is an older copy than the {newer}, and input would be lost; "
                "restore both as of one moment, or start a new warehouse with `sessionlake bootstrap`"
            )
        return batch_id == last

    def _check_interrupted(self, batch_id: int, planned: str | None) -> None:
        """Raise PipelineStateError if an interrupted attempt of the batch, whose side rows stay, has read another input."""
        before = self._interrupted.get(batch_id)
        if before is not None and before.input not in (None, planned):
            raise PipelineStateError(
                f"checkpoint: batch {batch_id} of {self._pipeline.name!r} was interrupted, and its offsets are no longer those that it has read: "
                "another driver wrote them, or they were changed, and rows would be lost or doubled; put them back (from a backup, or the storage's "
                "older versions), or rebuild the tables with `sessionlake rebuild` (docs/recovery.md)"
            )

    def _batch_of(self, metadata: Mapping[str, Any]) -> int:
        return metadata["batch_id"] if metadata["checkpoint_id"] == self._pipeline.checkpoint_id else -1

    def _interrupted_batches(self, commits: Mapping[str, Commit | None]) -> dict[int, BatchCommit]:
        """Return a batch whose side rows were committed but which was not itself, as its side tables have it.

        Its rerun skips those commits, and so must judge late and dead by the same settings and versions, whatever the config
        says now.
        """
        committed = -1 if self.last is None else self.last.batch_id
        return {
            batch_id: BatchCommit.of(commit, table)
            for table, commit in commits.items()
            if commit is not None and (batch_id := self._batch_of(commit.metadata)) > committed
        }

    def _compute(self, p: Pipeline, rows: DataFrame, context: BatchContext, *, is_small: bool) -> Outcome:
        """Run the shards until none is stale and none needs more rows.

        Files that a round wrote in vain are named by no commit; VACUUM removes them.
        """
        operator = p.operator
        split = SplitTask(operator, context, p.outputs, p.shards)
        task = ShardTask(
            operator,
            context,
            p.outputs,
            p.store_dir,
            self._expected(p),
            cursors=self._cursors(p),
            store_engine=p.store_engine,
        )
        handed: dict[str, DataFrame] = {}
        settings: Mapping[str, str] = {}
        causes: dict[int, str] = {}
        for attempt in range(_ATTEMPTS):
            if is_small and attempt == 0:
                outcome = read_reports(in_one_task(rows, split, task))
            else:
                wire = map_in_arrow(rows, run_by(split), WIRE_DDL)
                with session_settings(rows.sparkSession, settings):
                    outcome = self._round(reduce(DataFrame.unionAll, handed.values(), wire), task)
            causes = {**outcome.stale, **causes}
            if not outcome.stale and not outcome.needs:
                return replace(outcome, causes=dict.fromkeys(causes, LAYOUT) if self._is_relaid(p) else causes)
            if outcome.stale:
                restoring = task.restoring | outcome.stale.keys()
                stored = p.stored_state(operator, dict(context.state))
                task = replace(task, restoring=restoring)
                size = _bytes_of(stored)
                handed[RESTORE] = self._handed(stored, restoring, parts_of(size, p.shards))
                settings = GENERATED_CODE if size > _LITTLE_STATE else {}
            # A stale shard has not yet named the rows that it needs, so the other shards must ask again in the same attempt.
            elif outcome.needs:
                needs = pa.concat_tables(outcome.needs)
                asked_rows = self._spark.createDataFrame(needs, spark_schema(needs.schema))
                asked = p.asked_for(operator, dict(context.state), asked_rows)
                handed[LOOKUP] = self._wired(asked, LOOKUP)
                task = replace(task, context=replace(context, handed_in=True))
        raise PipelineStateError(
            f"batch {context.batch_id}: shards {sorted(outcome.stale)} stayed stale after {_ATTEMPTS} attempts; "
            f"delete {p.store_dir!r} and start again"
        )

    def _fits_one_task(self, p: Pipeline) -> bool:
        """Say whether a single task would finish a small batch's shards, in turn, sooner than a second stage."""
        spark = self._spark
        return is_local(spark) and (p.shards <= _FEW_SHARDS or spark.sparkContext.defaultParallelism <= _FEW_CORES)

    def _round(self, wire: DataFrame, task: ShardTask) -> Outcome:
        """Run the shards; run them again on the remaining executors if one is lost meanwhile."""
        shards = self._pipeline.shards
        for _ in range(_LOSSES):
            placed = None if is_local(self._spark) else place(self._spark, shards)
            try:
                with watched(self._spark, placed):
                    return read_reports(on_shards(wire, task, shards, placed))
            except ExecutorLostError:
                continue
        raise PipelineStateError(
            f"batch {task.context.batch_id}: {_LOSSES} attempts lost an executor each; "
            "see why they end (often memory: raise spark.executor.memoryOverhead or pipeline.shards), then start again"
        )

    def _layout(self, p: Pipeline) -> str:
        return layout_of(p.shards, p.store_layout(p.operator), p.store_engine)

    def _is_relaid(self, p: Pipeline) -> bool:
        return self.last is not None and self.last.layout != self._layout(p)

    def _expected(self, p: Pipeline) -> tuple[str | None, ...]:
        if self.last is None:
            return (None,) * p.shards
        if self._is_relaid(p):
            # No store can be at this id, so each is restored with its current keys in the current layout.
            return (f"{self.last.commit_id}/{self._layout(p)}",) * p.shards
        return self.last.shards

    def _cursors(self, p: Pipeline) -> tuple[Mapping[str, Any], ...]:
        return () if self.last is None or self._is_relaid(p) else self.last.cursors

    def _wired(self, rows: DataFrame, kind: str) -> DataFrame:
        """Return rows with a column `key` as wire rows of a kind."""
        count = self._pipeline.shards

        def split(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for batch in batches:
                table = pa.Table.from_batches([batch])
                yield from exchange.wire_rows(by_shard(kind, table, shard_of(batch["key"], count)))

        return map_in_arrow(rows, split, WIRE_DDL)

    def _handed(self, stored: DataFrame, restoring: frozenset[int], parts: int) -> DataFrame:
        """Return stored state as wire rows for the restored shards, each shard's in so many parts."""
        count = self._pipeline.shards

        def split(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            yield from exchange.wire_rows(handed_pieces(batches, restoring, count, parts))

        wire = map_in_arrow(stored, split, WIRE_DDL)
        if is_local(self._spark) or VERSION not in stored.columns:
            return wire
        # A cluster's task gets its rows at once, so older versions must not be among them.
        folder = self._pipeline.store_dir

        def merge(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            yield from exchange.wire_rows(merged_pieces(batches, Path(expanded(folder))))

        return map_in_arrow(wire.repartitionById(count * parts, F.expr(place_of(count)).cast("int")), merge, WIRE_DDL)

    def _batch(
        self, p: Pipeline, context: BatchContext, outcome: Outcome, started_us: int, planned: str | None
    ) -> BatchCommit:
        shards = tuple(
            context.commit_id if shard in outcome.touched else seen for shard, seen in enumerate(self._expected(p))
        )
        return BatchCommit(
            pipeline=p.name,
            checkpoint_id=p.checkpoint_id,
            batch_id=context.batch_id,
            commit_id=context.commit_id,
            state=p.operator.next_state(context.state, outcome.stats),
            counts=counts_of(outcome.stats),
            shards=shards,
            layout=self._layout(p),
            settings=p.settings,
            input=planned,
            pins=context.pins,
            keeps_replaced=context.keeps_replaced,
            started_us=started_us,
            committed_us=time.time_ns() // 1000,
            places=places_of(outcome, p.shards, None if self.last is None else self.last.places),
            cursors=self._next_cursors(p, outcome),
            driver=socket.gethostname(),
        )

    def _next_cursors(self, p: Pipeline, outcome: Outcome) -> tuple[Mapping[str, Any], ...]:
        before = self._cursors(p)
        if not before and not outcome.cursors:
            return ()
        return tuple(outcome.cursors.get(s, before[s] if before else {}) for s in range(self._pipeline.shards))

    def _commit(self, output: Output, outcome: Outcome, batch: BatchCommit) -> int:
        """Commit a table's files, unless an interrupted attempt of the batch has committed its own; return the version."""
        seen = self._seen[output.table]
        if seen.batch_id >= batch.batch_id:
            return seen.version
        files = [file for file in outcome.files if file.table == output.table]
        seen.version = self._tables[output.table].commit_files(
            files,
            batch.checkpoint_id,
            batch.batch_id,
            {**batch.metadata(), "follows": seen.version},
            after_version=seen.version,
            guarded=output.guarded,
            term=self._term,
        )
        seen.batch_id = batch.batch_id
        return seen.version


def _bytes_of(rows: DataFrame) -> int:
    """Return how many bytes of files a query reads, as far as Spark knows before it runs."""
    plan = rows._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    return int(str(plan.stats().sizeInBytes()))
