"""The driver's part of a batch: run the shards, append what they made, and let the changelog's append be the commit."""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from sessionlake.engine import exchange, failpoints
from sessionlake.engine.exchange import KIND, PAYLOAD, WIRE_DDL
from sessionlake.engine.operator import BatchContext, Operator, by_shard, shard_of
from sessionlake.engine.placement import on_shards
from sessionlake.engine.shard import ShardTask
from sessionlake.errors import FencedError, PipelineStateError
from sessionlake.tables import Tables, spark_schema

_ATTEMPTS = 5
_ROWS_PER_FILE = 50_000


@dataclass(frozen=True)
class SideTable:
    """A table that takes one kind of a shard's side output."""

    kind: str
    name: str
    schema: pa.Schema
    rows: Callable[[pa.Table], pa.Table]
    """Turn what the operator put out into the table's rows; batch_id and commit_id are added to them."""


@dataclass(frozen=True)
class Pipeline:
    """What the coordinator must know of a pipeline."""

    name: str
    checkpoint_id: str
    operator: Operator
    shards: int
    store_dir: str
    changelog: str
    sides: tuple[SideTable, ...]
    settings: Mapping[str, Any]
    """What later runs compare their own settings with; kept in every commit."""
    operator_with: Callable[[Mapping[str, Any]], Operator]
    """The operator under other settings: those an interrupted attempt of a batch has already appended side rows with."""
    next_state: Callable[[dict[str, Any], dict[str, int]], dict[str, Any]]
    changelog_columns: Callable[[DataFrame, str], DataFrame]
    """Add the changelog's derived columns to a batch's changes, given its commit_id."""
    stored_state: Callable[[Operator, dict[str, Any]], DataFrame]
    """Rows (key, ...) from the tables, that restore shards after the last commit, given the state."""
    asked_for: Callable[[Operator, dict[str, Any], DataFrame], DataFrame]
    """Rows (key, ...) that answer shards' needs."""
    store_layout: Callable[[Operator], str]
    """What stores depend on besides their keys: under another layout every store is restored."""


@dataclass(frozen=True)
class Outcome:
    """The numbers that the shards of one attempt reported."""

    stats: dict[str, int]
    touched: frozenset[int]
    stale: frozenset[int]
    needs: tuple[pa.Table, ...]
    kinds: frozenset[str]


class Coordinator:
    """Commit batches of one pipeline, one at a time; one instance a driver."""

    def __init__(self, spark: SparkSession, tables: Tables, pipeline: Pipeline) -> None:
        self._spark, self._tables, self._pipeline = spark, tables, pipeline
        commit = tables.last_commit(pipeline.changelog)
        self._version = -1 if commit is None else commit.version
        self._interrupted = self._interrupted_settings(-1 if commit is None else commit.metadata["batch_id"])
        self.last: dict[str, Any] | None = None if commit is None else commit.metadata
        self.totals: dict[str, int] = {}
        self.on_commit: Callable[[dict[str, Any]], None] = lambda _: None

    def run_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Run and commit a batch; one that is committed already is left alone.

        `rows` has a column `clock`, the batch's time as logged, beside what the operator reads.
        Raises FencedError where another driver committed this batch_id.
        """
        if self._is_committed(batch_id):
            return
        started = time.time_ns() // 1000
        commit_id = uuid.uuid4().hex[:16]
        context = BatchContext(batch_id, commit_id, self.last["state"] if self.last else {})
        settings = self._interrupted.get(batch_id, self._pipeline.settings)
        same = settings == self._pipeline.settings
        operator = self._pipeline.operator if same else self._pipeline.operator_with(settings)
        output, outcome = self._compute(operator, rows, context)
        try:
            failpoints.hit("computed")
            metadata = {**self._metadata(operator, context, outcome, started), "settings": dict(settings)}
            for side in self._pipeline.sides:
                if side.kind in outcome.kinds:
                    failpoints.hit(f"before_{side.kind}")
                    self._append_side(side, output, metadata)
                    failpoints.hit(f"after_{side.kind}")
            failpoints.hit("before_changelog")
            self._append_changes(output, metadata)
            failpoints.hit("after_changelog")
        finally:
            output.unpersist()
        self._confirm(metadata)

    def _is_committed(self, batch_id: int) -> bool:
        """Say whether the batch is the last committed one; PipelineStateError where it is neither that nor the next."""
        last = -1 if self.last is None else self.last["batch_id"]
        if batch_id not in (last, last + 1):
            older, newer = ("checkpoint", "changelog") if batch_id < last else ("changelog", "checkpoint")
            raise PipelineStateError(
                f"checkpoint: {self._pipeline.name!r} goes on with batch {batch_id}, but the changelog ends with {last}: "
                f"the {older} is an older copy than the {newer}, and input would be lost; "
                "restore both as of one moment, or start a new warehouse with `sessionlake bootstrap`"
            )
        return batch_id == last

    def _interrupted_settings(self, committed: int) -> dict[int, Mapping[str, Any]]:
        """Return the settings of a batch whose side rows were appended but which was not committed.

        Its rerun skips those appends, and so must judge late and dead by the same settings, whatever the config says now.
        """
        found = {}
        for side in self._pipeline.sides:
            commit = self._tables.last_commit(side.name)
            if (
                commit is not None
                and commit.metadata["batch_id"] > committed
                and commit.metadata["checkpoint_id"] == self._pipeline.checkpoint_id
            ):
                found[commit.metadata["batch_id"]] = commit.metadata["settings"]
        return found

    def _compute(self, operator: Operator, rows: DataFrame, context: BatchContext) -> tuple[DataFrame, Outcome]:
        """Run the shards until none is stale and none needs more rows; return their output, persisted."""
        task = ShardTask(operator, context, self._pipeline.store_dir, self._expected(operator))
        wire = self._split(operator, rows, context)
        handed: dict[str, DataFrame] = {}
        for _ in range(_ATTEMPTS):
            output = on_shards(reduce(DataFrame.unionAll, handed.values(), wire), task, self._pipeline.shards).persist()
            outcome = self._outcome(output)
            if not outcome.stale and not outcome.needs:
                return output, outcome
            output.unpersist()
            if outcome.stale:
                restoring = task.restoring | outcome.stale
                stored = self._pipeline.stored_state(operator, dict(context.state))
                task = replace(task, restoring=restoring, restore_schema=to_arrow_schema(stored.schema))
                handed["restore"] = self._wired(stored, "restore", restoring)
            # A stale shard has not said yet what it needs, so that the others must ask again beside it.
            elif outcome.needs:
                needs = pa.concat_tables(outcome.needs)
                asked = self._pipeline.asked_for(
                    operator,
                    dict(context.state),
                    self._spark.createDataFrame(needs.to_pandas(), spark_schema(needs.schema)),
                )
                handed["cold"] = self._wired(asked, "cold", None)
                task = replace(task, context=replace(context, handed_in=True))
        raise PipelineStateError(
            f"batch {context.batch_id}: shards {sorted(outcome.stale)} stayed stale after {_ATTEMPTS} attempts; "
            f"delete {self._pipeline.store_dir!r} and start again"
        )

    def _layout(self, operator: Operator) -> str:
        return f"{self._pipeline.shards}/{self._pipeline.store_layout(operator)}"

    def _expected(self, operator: Operator) -> tuple[str | None, ...]:
        if self.last is None:
            return (None,) * self._pipeline.shards
        layout = self._layout(operator)
        if self.last["layout"] != layout:
            # No store can be at this id, so that each is restored: with the keys that now belong to it, laid out as now.
            return (f"{self.last['commit_id']}/{layout}",) * self._pipeline.shards
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

    def _outcome(self, output: DataFrame) -> Outcome:
        small = F.col(KIND).isin(exchange.STATS, exchange.STALE, exchange.NEEDS)
        control = output.where(F.col(KIND).isNotNull()).select(KIND, F.when(small, F.col(PAYLOAD)).alias(PAYLOAD))
        stats: dict[str, int] = {}
        touched, stale, needs, kinds = set(), set(), [], set()
        for kind, payload in control.collect():
            if kind == exchange.STATS:
                report = json.loads(payload)
                if report["touched"]:
                    touched.add(report["shard"])
                for name, value in report["stats"].items():
                    stats[name] = (
                        max(stats.get(name, value), value) if name.startswith("max_") else stats.get(name, 0) + value
                    )
            elif kind == exchange.STALE:
                stale.add(int(payload))
            elif kind == exchange.NEEDS:
                needs.append(pa.ipc.open_stream(payload).read_all())
            else:
                kinds.add(kind)
        return Outcome(stats, frozenset(touched), frozenset(stale), tuple(needs), frozenset(kinds))

    def _metadata(self, operator: Operator, context: BatchContext, outcome: Outcome, started_us: int) -> dict[str, Any]:
        p = self._pipeline
        shards = [
            context.commit_id if shard in outcome.touched else seen
            for shard, seen in enumerate(self._expected(operator))
        ]
        return {
            "pipeline": p.name,
            "checkpoint_id": p.checkpoint_id,
            "batch_id": context.batch_id,
            "commit_id": context.commit_id,
            "state": p.next_state(dict(context.state), outcome.stats),
            "counts": {name: value for name, value in outcome.stats.items() if not name.startswith("max_")},
            "shards": shards,
            "layout": self._layout(operator),
            "started_us": started_us,
            "committed_us": time.time_ns() // 1000,
        }

    def _append_side(self, side: SideTable, output: DataFrame, metadata: dict[str, Any]) -> None:
        turn, schema = side.rows, side.schema
        mark = {name: metadata[name] for name in ("batch_id", "commit_id")}

        def rows(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for batch in batches:
                for payload in batch[PAYLOAD]:
                    table = turn(exchange.from_payload(payload))
                    for name, value in mark.items():
                        table = table.append_column(name, pa.repeat(value, table.num_rows))
                    yield from table.select(schema.names).cast(schema).combine_chunks().to_batches()

        decoded = _only(output, F.col(KIND) == side.kind).select(PAYLOAD).mapInArrow(rows, spark_schema(schema))
        self._tables.append(side.name, decoded.coalesce(1), metadata["checkpoint_id"], metadata["batch_id"], metadata)

    def _append_changes(self, output: DataFrame, metadata: dict[str, Any]) -> None:
        names = [f.name for f in self._pipeline.operator.changes_schema]
        changes = _only(output, F.col(KIND).isNull()).select(*names)
        counts = metadata["counts"]
        rows = sum(counts.get(name, 0) for name in ("upserts", "deletes", "emitted"))
        files = min(self._pipeline.shards, 1 + rows // _ROWS_PER_FILE)
        self._tables.append(
            self._pipeline.changelog,
            self._pipeline.changelog_columns(changes, metadata["commit_id"]).coalesce(files),
            metadata["checkpoint_id"],
            metadata["batch_id"],
            metadata,
        )

    def _confirm(self, metadata: dict[str, Any]) -> None:
        """Read the commit back: an append under a known (checkpoint, batch_id) is skipped without an error."""
        ours = [
            c
            for c in self._tables.commits(self._pipeline.changelog, self._version)
            if c.metadata["batch_id"] == metadata["batch_id"]
        ]
        if not ours or ours[0].metadata["commit_id"] != metadata["commit_id"]:
            raise FencedError(
                f"pipeline {self._pipeline.name!r}: another driver committed batch {metadata['batch_id']}; "
                "this one stops, keep only one running on this warehouse"
            )
        self._version, self.last = ours[0].version, metadata
        for name, value in metadata["counts"].items():
            self.totals[name] = self.totals.get(name, 0) + value
        self.on_commit(metadata)


def _only(output: DataFrame, wanted: Column) -> DataFrame:
    """Return some rows of a computed batch, failing where a part of it was lost since and, computed again, is stale.

    That happens when the executor is lost that held the part and the store: its rows would be missing without a word.
    One condition, because two would let Spark skip cached blocks that the second one rules out, unread.
    """
    lost = F.col(KIND).isin(exchange.STALE, exchange.NEEDS)
    message = F.lit("a shard's output was lost with its executor; start again, the batch is then computed anew")
    return output.where(F.when(lost, F.raise_error(message).cast("boolean")).otherwise(wanted))
