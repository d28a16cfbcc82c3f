"""Spark's own operators as a stream of files into Delta; state in RocksDB, all else Spark's defaults."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.cpu import tree_cpu_s
from benchmarks.memory import end_sampling
from benchmarks.native import ROCKSDB, plain_session
from benchmarks.peers.results import added_up, first_measured
from benchmarks.peers.workloads import WORKLOADS, Workload

SCHEMA = "key string, ts timestamp, amount long, page string, offset long, ms long"
SETTINGS = "local[2], 2 partitions, RocksDB with changelog, else Spark's defaults"
UPDATED = ("tumbling", "stored")
"""Workloads of which each change is sent."""
_LOOK_S = 0.2
Operator = Callable[[Callable[[str], DataFrame], Workload], DataFrame]
"""Returns the results of a workload, given the events of a folder by its name."""


def spark_peer(case: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of each micro-batch with input."""
    return spark_measured(case, _OPERATORS)


def spark_measured(case: dict[str, Any], operators: Mapping[str, Operator]) -> dict[str, Any]:
    """Run the operator of the case's workload as a stream; return what was measured, and what the results add up to."""
    home, workload = Path(case["home"]), WORKLOADS[case["workload"]]
    spark = plain_session(case)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    target = str(home / "out")
    running = _started(operators[workload.name], spark, workload, case, target)
    batches = case["batches"]
    first = first_measured(case)
    cpu_s: dict[int, float] = {}
    while not running.awaitTermination(_LOOK_S):
        progress = running.lastProgress
        done = progress["batchId"] + 1 if progress else 0
        if first <= done <= batches:
            cpu_s.setdefault(done, tree_cpu_s())
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in running.recentProgress if p["numInputRows"]]
    seen = sorted(cpu_s)
    a_batch = (cpu_s[seen[-1]] - cpu_s[seen[0]]) / max(1, seen[-1] - seen[0])
    end_sampling(case["home"])
    results = str(home / "results")
    _latest(spark.read.format("delta").load(target), workload).write.parquet(results)
    spark.stop()
    return {
        "seconds": seconds,
        "cpu_s": round(a_batch, 3),
        "added_up": added_up(f"read_parquet('{results}/*.parquet')", workload, case),
        "version": pyspark.__version__,
        "settings": SETTINGS,
    }


def _started(operator: Operator, spark: SparkSession, workload: Workload, case: dict[str, Any], target: str) -> Any:
    def events(name: str) -> DataFrame:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", case["files"])
        rows = reader.option("maxFileAge", "1000000d").parquet(f"{case['input']}/{name}")
        return rows.withWatermark("ts", f"{workload.grace_ms // 60_000} minutes")

    found = operator(events, workload)
    writer = found.writeStream.option("checkpointLocation", f"{case['home']}/checkpoint").trigger(availableNow=True)
    if workload.name in UPDATED:
        return writer.outputMode("update").foreachBatch(_appended(target)).start()
    return writer.outputMode("append").format("delta").start(target)


def _appended(target: str) -> Callable[[DataFrame, int], None]:
    """Return what appends a batch once: Delta skips one that it has."""

    def append(rows: DataFrame, batch_id: int) -> None:
        writer = rows.write.format("delta").mode("append")
        writer.option("txnAppId", "bench").option("txnVersion", batch_id).save(target)

    return append


def _sums(rows: DataFrame, window: Any) -> DataFrame:
    sums = rows.groupBy("key", window.alias("w")).agg(F.count("*").alias("count"), F.sum("amount").alias("total"))
    times = (F.unix_millis(f"w.{name}").alias(name) for name in ("start", "end"))
    return sums.select("key", *times, "count", "total")


def _sessions(events: Callable[[str], DataFrame], workload: Workload) -> DataFrame:
    found = _sums(events("events"), F.session_window("ts", _duration(workload.step_ms)))
    return found.withColumn("end", F.col("end") - workload.step_ms)


def _tumbling(events: Callable[[str], DataFrame], workload: Workload) -> DataFrame:
    return _sums(events("events"), F.window("ts", _duration(workload.size_ms)))


def _hopping(events: Callable[[str], DataFrame], workload: Workload) -> DataFrame:
    return _sums(events("events"), F.window("ts", _duration(workload.size_ms), _duration(workload.step_ms)))


def _join(events: Callable[[str], DataFrame], workload: Workload) -> DataFrame:
    size = f"interval {_duration(workload.size_ms)}"
    within = f"l.ts between r.ts - {size} and r.ts + {size}"
    pairs = events("left").alias("l").join(events("right").alias("r"), F.expr(f"l.key = r.key and {within}"))
    named = {"start": "l.ms", "end": "r.ms", "count": "l.amount", "total": "r.amount"}
    return pairs.select("l.key", *(F.col(column).alias(name) for name, column in named.items()))


_OPERATORS = {"sessions": _sessions, "tumbling": _tumbling, "stored": _tumbling, "hopping": _hopping, "join": _join}


def _latest(rows: DataFrame, workload: Workload) -> DataFrame:
    """Return the last update of each window: the one with the most events."""
    if workload.name not in UPDATED:
        return rows
    latest = (F.max("count").alias("count"), F.max_by("total", "count").alias("total"))
    return rows.groupBy("key", "start", "end").agg(*latest)


def _duration(millis: int) -> str:
    return f"{millis // 1000} seconds"
