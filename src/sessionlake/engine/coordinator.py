"""The driver's part of a batch: run the shards, commit the files they wrote, the changelog's last: that is the commit."""

import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from sessionlake.engine import exchange, failpoints
from sessionlake.engine.exchange import WIRE_DDL
from sessionlake.engine.operator import BatchContext, Operator, by_shard, shard_of
from sessionlake.engine.outputs import Output
from sessionlake.engine.pipeline import Pipeline
from sessionlake.engine.placement import ExecutorLostError, is_local, on_shards, place, watched
from sessionlake.engine.reports import Outcome, places_of, read_reports
from sessionlake.engine.shard import LAYOUT, ShardTask
from sessionlake.errors import FencedError, PipelineStateError
from sessionlake.warehouse.delta_log import Commit
from sessionlake.warehouse.history import stamp
from sessionlake.warehouse.tables import Tables, spark_schema

_ATTEMPTS = 5
_LOSSES = 10


@dataclass
class Seen:
    """How far this driver knows a table."""

    version: int
    """Up to it, inclusive, the log was looked at."""
    batch_id: int
    """Last batch that was committed to the table under this pipeline's checkpoint; -1 where none was."""


class Coordinator:
    """Commit batches of one pipeline, one at a time; one instance a driver."""

    def __init__(self, spark: SparkSession, tables: Tables, pipeline: Pipeline) -> None:
        self._spark, self._tables, self._pipeline = spark, tables, pipeline
        commits = {output.table: tables.last_commit(output.table) for output in pipeline.outputs}
        self._seen = {
            table: Seen(-1, -1) if commit is None else Seen(commit.version, self._batch_of(commit.metadata))
            for table, commit in commits.items()
        }
        last = commits[pipeline.outputs[-1].table]
        self.last: dict[str, Any] | None = None if last is None else last.metadata
        self._interrupted = self._interrupted_settings(commits)
        self.totals: dict[str, int] = {}
        self.on_commit: Callable[[dict[str, Any]], None] = lambda _: None

    def run_batch(self, rows: DataFrame, batch_id: int, planned: str | None) -> None:
        """Run and commit a batch; one that is committed already is left alone.

        `rows` has a column `clock`, the batch's time as logged, beside what the operator reads. `planned` is what
        `Pipeline.input_of` says of the batch before it runs; it is asked once more before the first commit.
        Raises FencedError where another driver committed this batch_id, or plans it too: not every file system keeps the
        second of two from writing the batch's offsets, and its are then what the next start would go on from.
        """
        if self._is_committed(batch_id, planned):
            return
        started = time.time_ns() // 1000
        commit_id = uuid.uuid4().hex[:16]
        context = BatchContext(batch_id, commit_id, self.last["state"] if self.last else {})
        settings = self._interrupted.get(batch_id, self._pipeline.settings)
        same = settings == self._pipeline.settings
        operator = self._pipeline.operator if same else self._pipeline.operator_with(settings)
        outcome = self._compute(operator, rows, context)
        failpoints.hit("computed")
        if self._pipeline.input_of(batch_id) != planned:
            raise FencedError(
                f"checkpoint: another driver has planned batch {batch_id} of {self._pipeline.name!r} while this one computed it; "
                "this one stops, keep only one running on this warehouse"
            )
        metadata = {**self._metadata(operator, context, outcome, started), "input": planned, "settings": dict(settings)}
        *sides, changelog = self._pipeline.outputs
        for side in sides:
            if any(file.table == side.table for file in outcome.files):
                failpoints.hit(f"before_{side.kind}")
                self._commit(side, outcome, metadata)
                failpoints.hit(f"after_{side.kind}")
        failpoints.hit("before_changelog")
        self._commit(changelog, outcome, metadata)
        failpoints.hit("after_changelog")
        self.last = metadata
        for name, value in metadata["counts"].items():
            self.totals[name] = self.totals.get(name, 0) + value
        self.on_commit(metadata)

    def _is_committed(self, batch_id: int, planned: str | None) -> bool:
        """Say whether the batch is the last committed one; PipelineStateError where it is neither that nor the next."""
        last = -1 if self.last is None else self.last["batch_id"]
        other_input = False
        if batch_id == last and self.last is not None:
            other_input = self.last["input"] not in (None, planned)
        if batch_id not in (last, last + 1) or other_input:
            older, newer = ("checkpoint", "changelog") if batch_id <= last else ("changelog", "checkpoint")
            raise PipelineStateError(
                f"checkpoint: {self._pipeline.name!r} goes on with batch {batch_id}, but the changelog ends with {last}: "
                f"the {older} is an older copy than the {newer}, and input would be lost; "
                "restore both as of one moment, or start a new warehouse with `sessionlake bootstrap`"
            )
        return batch_id == last

    def _batch_of(self, metadata: Mapping[str, Any]) -> int:
        return metadata["batch_id"] if metadata["checkpoint_id"] == self._pipeline.checkpoint_id else -1

    def _interrupted_settings(self, commits: Mapping[str, Commit | None]) -> dict[int, Mapping[str, Any]]:
        """Return the settings of a batch whose side rows were committed but which was not itself.

        Its rerun skips those commits, and so must judge late and dead by the same settings, whatever the config says now.
        """
        committed = -1 if self.last is None else self.last["batch_id"]
        return {
            batch_id: commit.metadata["settings"]
            for commit in commits.values()
            if commit is not None and (batch_id := self._batch_of(commit.metadata)) > committed
        }

    def _compute(self, operator: Operator, rows: DataFrame, context: BatchContext) -> Outcome:
        """Run the shards until none is stale and none needs more rows.

        Files that a round wrote in vain are named by no commit; VACUUM removes them.
        """
        p = self._pipeline
        task = ShardTask(operator, context, p.outputs, p.store_dir, self._expected(operator))
        wire = self._split(operator, rows, context)
        handed: dict[str, DataFrame] = {}
        causes: dict[int, str] = {}
        for _ in range(_ATTEMPTS):
            outcome = self._round(reduce(DataFrame.unionAll, handed.values(), wire), task)
            causes = {**outcome.stale, **causes}
            if not outcome.stale and not outcome.needs:
                return replace(outcome, causes=dict.fromkeys(causes, LAYOUT) if self._is_relaid(operator) else causes)
            if outcome.stale:
                restoring = task.restoring | outcome.stale.keys()
                stored = p.stored_state(operator, dict(context.state))
                task = replace(task, restoring=restoring, restore_schema=to_arrow_schema(stored.schema))
                handed["restore"] = self._wired(stored, "restore", restoring)
            # A stale shard has not said yet what it needs, so that the others must ask again beside it.
            elif outcome.needs:
                needs = pa.concat_tables(outcome.needs)
                asked_rows = self._spark.createDataFrame(needs, spark_schema(needs.schema))
                asked = p.asked_for(operator, dict(context.state), asked_rows)
                handed["cold"] = self._wired(asked, "cold", None)
                task = replace(task, context=replace(context, handed_in=True))
        raise PipelineStateError(
            f"batch {context.batch_id}: shards {sorted(outcome.stale)} stayed stale after {_ATTEMPTS} attempts; "
            f"delete {p.store_dir!r} and start again"
        )

    def _round(self, wire: DataFrame, task: ShardTask) -> Outcome:
        """Run the shards once; again, with the executors that are left, where one is lost meanwhile."""
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

    def _layout(self, operator: Operator) -> str:
        return f"{self._pipeline.shards}/{self._pipeline.store_layout(operator)}"

    def _is_relaid(self, operator: Operator) -> bool:
        return self.last is not None and self.last["layout"] != self._layout(operator)

    def _expected(self, operator: Operator) -> tuple[str | None, ...]:
        if self.last is None:
            return (None,) * self._pipeline.shards
        if self._is_relaid(operator):
            # No store can be at this id, so that each is restored: with the keys that now belong to it, laid out as now.
            return (f"{self.last['commit_id']}/{self._layout(operator)}",) * self._pipeline.shards
        return tuple(self.last["shards"])

    def _split(self, operator: Operator, rows: DataFrame, context: BatchContext) -> DataFrame:
        def split(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows:
                    clock = batch["clock"][0].cast(pa.timestamp("us", "UTC")).value
                    events = batch.drop_columns(["clock"])
                    yield from exchange.wire_rows(operator.split(iter([events]), replace(context, clock_us=clock)))

        return rows.mapInArrow(split, WIRE_DDL)

    def _wired(self, rows: DataFrame, kind: str, shards: frozenset[int] | None) -> DataFrame:
        """Return rows with a column `key` as wire rows of a kind, for some shards or (None) all."""
        count = self._pipeline.shards

        def split(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for batch in batches:
                table = pa.Table.from_batches([batch])
                pieces = by_shard(kind, table, shard_of(batch["key"], count))
                yield from exchange.wire_rows(p for p in pieces if shards is None or p[0] in shards)

        return rows.mapInArrow(split, WIRE_DDL)

    def _metadata(self, operator: Operator, context: BatchContext, outcome: Outcome, started_us: int) -> dict[str, Any]:
        p = self._pipeline
        shards = [
            context.commit_id if shard in outcome.touched else seen
            for shard, seen in enumerate(self._expected(operator))
        ]
        return {
            **stamp(),
            "pipeline": p.name,
            "checkpoint_id": p.checkpoint_id,
            "batch_id": context.batch_id,
            "commit_id": context.commit_id,
            "state": p.next_state(dict(context.state), outcome.stats),
            "counts": {name: value for name, value in outcome.stats.items() if not name.startswith("max_")},
            "shards": shards,
            "places": places_of(outcome, p.shards),
            "layout": self._layout(operator),
            "driver": socket.gethostname(),
            "started_us": started_us,
            "committed_us": time.time_ns() // 1000,
        }

    def _commit(self, output: Output, outcome: Outcome, metadata: dict[str, Any]) -> None:
        """Commit a table's files, unless an interrupted attempt of the batch has done so with its own."""
        seen, batch_id = self._seen[output.table], metadata["batch_id"]
        if seen.batch_id >= batch_id:
            return
        files = [file for file in outcome.files if file.table == output.table]
        seen.version = self._tables.commit_files(
            output.table,
            files,
            metadata["checkpoint_id"],
            batch_id,
            {**metadata, "follows": seen.version},
            after_version=seen.version,
            # Of side tables rows may be deleted by whoever wants to; nothing is computed from them unasked.
            guarded=output is self._pipeline.outputs[-1],
        )
        seen.batch_id = batch_id
