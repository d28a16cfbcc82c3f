"""Placement of shards: one partition a shard, on the executor with the shard's store."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sessionlake.engine import exchange
from sessionlake.engine.shard import ShardTask
from sessionlake.engine.split import SplitTask
from sessionlake.engine.watching import cancelled_if
from sessionlake.errors import ConfigError
from sessionlake.warehouse.spark_columns import map_in_arrow


@dataclass(frozen=True)
class Placed:
    """The shards' executors at the last look, and the anchor that makes Spark keep to them."""

    held: Mapping[str, Sequence[int]]
    """Per live executor, as Spark names a location: its shards in the order in which it got them."""
    anchor: DataFrame


_LEAST = 2
"""Partitions of the shards' stage on a cluster. Spark plans a single partition as another kind of shuffle, and shuffles the anchor too, which loses its locations."""
_SUCCESSOR_SECONDS, _LOOK_SECONDS = 10.0, 0.1
"""How long the shards of a lost executor wait for its successor, and between two looks.

A worker starts it at once, with the stores of the lost shards on its disk. The other executors do not have them, so each
shard would be restored, and again when the successor gets it back. To wait for a Java that starts is less (docs/decisions/0008).
"""
_placed: dict[tuple[str, int, int], Placed] = {}
BEFORE = "spark.sessionlake.shardsBefore"
"""The number of shards of a session's earlier pipelines: this driver's own are dealt out after them."""


class ExecutorLostError(Exception):
    """An executor went while shards ran on it; they are to be run again, by others."""


def is_local(spark: SparkSession) -> bool:
    """Say whether one process runs everything."""
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")


def run_by(task: SplitTask | ShardTask) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return a task as the function of a stage."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield from task.run(batches)

    return run


def in_one_task(rows: DataFrame, split: SplitTask, task: ShardTask) -> DataFrame:
    """Split a batch's input and run its shards in a single task, in turn and without a shuffle; for a single local process.

    For a few rows a stage of shards, with a task for each, takes longer than the work that it shares out.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield from task.run(split.run(batches))

    return map_in_arrow(rows.coalesce(1), run, exchange.REPORT_DDL)


def on_shards(wire: DataFrame, task: ShardTask, shards: int, placed: Placed | None) -> DataFrame:
    """Shuffle wire rows by shard and run the task on each.

    On a cluster the rows are cogrouped with an anchor, one row a shard, whose partitions name the executors that the
    shards belong to (needs spark.shuffle.reduceLocality.enabled=false); one local process (None) needs none.
    """
    if placed is None:
        return map_in_arrow(wire.repartitionById(shards, "shard"), run_by(task), exchange.REPORT_DDL)

    def run_group(rows: pa.Table, anchor: pa.Table) -> pa.Table:
        del anchor
        return pa.Table.from_batches(list(task.run(rows.to_batches())), schema=exchange.REPORT_SCHEMA)

    by_shard = wire.repartitionById(max(shards, _LEAST), "shard")
    grouped = by_shard.groupBy("shard").cogroup(placed.anchor.groupBy("shard"))
    return grouped.applyInArrow(run_group, exchange.REPORT_DDL)


@contextmanager
def watched(spark: SparkSession, placed: Placed | None) -> Iterator[None]:
    """Cancel the jobs started within, and raise ExecutorLostError, as soon as an executor with shards is gone.

    Spark would let its shards wait for it as long as it lets tasks wait for a busy executor.
    """
    if placed is None:
        yield
        return
    needed = {executor for executor, own in placed.held.items() if own}
    with cancelled_if(spark, lambda: not needed <= set(_registered(spark))) as lost:
        try:
            yield
        except Exception as error:
            if lost.is_set():
                raise ExecutorLostError from error
            raise


def place(spark: SparkSession, shards: int) -> Placed:
    """Return the current executors of the shards. A shard moves only if executors were lost or added since the last call.

    After a loss this waits some seconds for successors: until there are as many executors as at the last call.
    """
    if str(spark.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        raise ConfigError(
            "spark.dynamicAllocation.enabled: 'true' removes executors while they hold shards; set it to false for the stream"
        )
    dealt = int(spark.conf.get(BEFORE, "0") or 0)
    key = (str(spark.sparkContext.applicationId), shards, dealt)
    before = _placed.get(key)
    live = awaited(lambda: _executors(spark), len(before.held) if before else 1, _SUCCESSOR_SECONDS)
    if before is None or set(before.held) != set(live):
        held = spread(before.held if before else {}, live, shards, dealt)
        _placed[key] = Placed(held, anchor_of(spark, held))
    return _placed[key]


def spread(
    before: Mapping[str, Sequence[int]], executors: Sequence[str], shards: int, dealt: int = 0
) -> dict[str, list[int]]:
    """Return the shards of each executor, spread evenly; as many shards as possible stay in their place.

    `dealt` shards of other pipelines were dealt out before, one to each executor in turn, and the next executor begins. So
    the shards of all pipelines together are spread evenly, too, as long as no executor comes or goes.

    An executor that must give shards up gives up those that it got last. So the shards that it took over from a lost
    executor move on to that executor's replacement.

    >>> spread({}, ["a", "b"], 5)
    {'a': [0, 1, 2], 'b': [3, 4]}
    >>> spread({"a": [0, 1, 2], "b": [3, 4]}, ["b", "c"], 5)
    {'b': [3, 4, 0], 'c': [1, 2]}
    >>> spread({}, ["a", "b"], 1, dealt=5)
    {'a': [], 'b': [0]}
    """
    held = {executor: list(before.get(executor, ())) for executor in executors}
    placed = {shard for own in held.values() for shard in own}
    waiting = deque(shard for shard in range(shards) if shard not in placed)
    least, more = divmod(shards, len(executors))
    # `more` executors get a shard above the least number: those with the most shards now, so fewer shards move.
    begin = dealt % len(executors)
    fullest = sorted([*executors[begin:], *executors[:begin]], key=lambda executor: -len(held[executor]))
    room = {executor: least + (rank < more) for rank, executor in enumerate(fullest)}
    # First collect the surplus of all executors, then deal it out: an executor's list is in the order in which it got its
    # shards, so the end of the list has the newest ones.
    for executor, own in held.items():
        waiting.extend(own[room[executor] :])
        del own[room[executor] :]
    for executor, own in held.items():
        own.extend(waiting.popleft() for _ in range(room[executor] - len(own)))
    return held


def awaited(look: Callable[[], tuple[str, ...]], many: int, seconds: float) -> tuple[str, ...]:
    """Return what `look` finds, as soon as that is so many or the time is over."""
    until = time.monotonic() + seconds
    while len(executors := look()) < many and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    return executors


def _executors(spark: SparkSession) -> tuple[str, ...]:
    """Return the live executors as locations; wait for the first one."""
    registered = _registered(spark)
    while not registered:
        spark.sparkContext.parallelize([0], 1).count()
        registered = _registered(spark)
    return registered


def _registered(spark: SparkSession) -> tuple[str, ...]:
    jvm: Any = spark._jvm  # noqa: SLF001
    status = jvm.org.apache.spark.SparkEnv.get().blockManager().master().getMemoryStatus()
    managers = jvm.scala.jdk.javaapi.CollectionConverters.asJava(status.keySet())
    executors = [(m.host(), m.executorId()) for m in managers if not m.isDriver()]
    # By host first: a new driver on the same hosts gives most shards the host that they had.
    executors.sort(key=lambda each: (each[0], len(each[1]), each[1]))
    return tuple(f"executor_{host}_{number}" for host, number in executors)


def anchor_of(spark: SparkSession, held: Mapping[str, Sequence[int]]) -> DataFrame:
    """Return a DataFrame with a partition and a row (shard) for each shard, and at least two, partitioned by shard.

    Spark prefers to read each partition on its shard's executor. If there is one shard, the second partition is of a shard without rows.
    """
    # The DataFrame API can declare neither a partition's location nor a partitioning, so this builds the plan node that
    # Spark's planner uses. Unlike a persisted frame it moves when executors come and go, and can't be evicted.
    jvm: Any = spark._jvm  # noqa: SLF001
    session: Any = spark._jsparkSession  # noqa: SLF001
    catalyst, convert = jvm.org.apache.spark.sql.catalyst, jvm.scala.jdk.javaapi.CollectionConverters

    def seq(items: Iterable[Any]) -> Any:
        listed = jvm.java.util.ArrayList()
        for item in items:
            listed.add(item)
        return convert.asScala(listed).toSeq()

    def row(shard: int) -> Any:
        values = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)  # type: ignore[union-attr]  # noqa: SLF001
        values[0] = shard
        return catalyst.expressions.GenericInternalRow(values)

    def module(name: str) -> Any:
        return getattr(jvm, name + "$").__getattr__("MODULE$")

    at = {shard: executor for executor, own in held.items() for shard in own}
    partitions = max(len(at), _LEAST)
    rows = seq(jvm.scala.Tuple2(row(shard), seq([at.get(shard, at[0])])) for shard in range(partitions))
    rdd = session.sparkContext().makeRDD(rows, module("scala.reflect.ClassTag").AnyRef())
    schema = spark.createDataFrame([], "shard int")._jdf.schema()  # noqa: SLF001
    output = catalyst.types.DataTypeUtils.toAttributes(schema)
    partitioning = catalyst.plans.physical.ShufflePartitionIdPassThrough(
        catalyst.expressions.DirectShufflePartitionID(output.head()), partitions
    )
    none = module("scala.None")
    plan = jvm.org.apache.spark.sql.execution.LogicalRDD(
        output, rdd, partitioning, seq([]), False, none, session, none, none
    )
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan), spark)
