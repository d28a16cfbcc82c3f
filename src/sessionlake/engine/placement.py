"""Where shards run: one partition a shard, kept on the executor that holds the shard's store."""

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sessionlake.engine import exchange
from sessionlake.engine.shard import ShardTask

_anchors: dict[tuple[str, int], DataFrame] = {}


def on_shards(wire: DataFrame, task: ShardTask, shards: int) -> DataFrame:
    """Shuffle wire rows by shard and run the task on each.

    On a cluster a persisted anchor, partitioned as the shards are, makes Spark schedule a shard where its anchor
    partition lies (needs spark.shuffle.reduceLocality.enabled=false); one local process needs none.
    """
    if str(wire.sparkSession.sparkContext.master).startswith("local["):

        def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            yield from task.run(batches)

        return wire.repartitionById(shards, "shard").mapInArrow(run, exchange.REPORT_DDL)

    def run_group(rows: pa.Table, anchor: pa.Table) -> pa.Table:
        del anchor
        return pa.Table.from_batches(list(task.run(rows.to_batches())), schema=exchange.REPORT_SCHEMA)

    grouped = (
        wire.repartition(shards, "shard").groupBy("shard").cogroup(_anchor(wire.sparkSession, shards).groupBy("shard"))
    )
    return grouped.applyInArrow(run_group, exchange.REPORT_DDL)


def _anchor(spark: SparkSession, shards: int) -> DataFrame:
    key = (str(spark.sparkContext.applicationId), shards)
    if key not in _anchors:
        anchor = spark.range(shards).selectExpr("int(id) shard").repartition(shards, "shard").persist()
        anchor.count()
        _anchors[key] = anchor
    return _anchors[key]
