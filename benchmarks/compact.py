"""Compaction of a synthetic snapshot against a plain full MERGE and a full rewrite, in one run; and what layouts give.

Called by `make bench-jobs`; writes a table and a JSON file. Changes are either of the last two dates, as a stream makes
them, or spread over all dates, as corrections may.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from benchmarks.memory import peak_memory
from benchmarks.synthetic import BASE_US
from sessionlake.config.load import Config, parse_config
from sessionlake.engine.spark import build_session
from sessionlake.jobs.compact import compact
from sessionlake.jobs.compact.layout import rewrite_ragged
from sessionlake.operators.sessions.changelog import SESSIONS
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import FOLD
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import changes, latest_changes, merged_rows

DAY_US = 86_400_000_000
DATES, RECENT, BATCHES = 30, 2, 40
LOOKUPS = 10
BYTES_PER_SESSION = 45
RESULTS = Path(__file__).parent / "results"
console = Console(highlight=False)


def make_config(root: Path) -> Config:
    return parse_config(
        {
            "pipeline": {"name": "bench", "warehouse": "warehouse", "shards": 4},
            "source": {"kind": "files", "path": "events", "format": "json"},
            "event": {"key": "key", "time": "time_us", "time_unit": "us"},
            "session": {"gap": "30 minutes", "grace": "2 hours", "retention": "1 day"},
            "aggregates": {"total": "sum(v)"},
        },
        root,
    )


def rows(ids: DataFrame, users: int, revision: str, days: str) -> DataFrame:
    """Return sessions by id, each with a key, a start and values that hang on its id (and on its revision) alone."""
    start = f"{BASE_US} + ({days}) * {DAY_US} + pmod(xxhash64(id), {DAY_US})"
    return (
        ids.withColumn("revision", F.expr(revision).cast("long"))
        .withColumn("session_key", F.expr(f"concat('user-', pmod(xxhash64(id, 1), {users}))"))
        .withColumn("start_us", F.expr(start))
        .withColumn("total", F.expr("pmod(xxhash64(id, revision), 1000000)"))
        .select(
            "id",
            "session_key",
            F.timestamp_micros("start_us").alias("session_start"),
            F.expr("timestamp_micros(start_us + pmod(xxhash64(id, revision, 2), 3600000000))").alias("session_end"),
            F.expr("to_date(timestamp_micros(start_us))").alias("session_date"),
            F.expr("1 + pmod(xxhash64(id, revision, 3), 9)").alias("event_count"),
            "revision",
            "total",
            F.expr("unhex(concat(lpad(hex(total), 16, '0'), '00000001'))").alias("state"),
            F.xxhash64("session_key", F.timestamp_micros("start_us")).alias("session_id"),
        )
    )


def build(spark: SparkSession, root: Path, sessions: int, changed: int, spread: str) -> Config:
    """Make a pipeline by one event, then give it a snapshot at batch 0 and a changelog of BATCHES more batches."""
    (root / "events").mkdir(parents=True)
    (root / "events" / "0.json").write_text(json.dumps({"key": "a", "time_us": BASE_US, "v": 1}) + "\n")
    config = make_config(root)
    run(spark, config, once=True)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    date = f"id % {DATES}"
    stored = rows(spark.range(sessions), sessions // 5, "0", date)
    snapshot = stored.select(*tables[schemas.SESSIONS].read().columns).repartitionById(
        DATES, F.expr("cast(dayofyear(session_date) as int)")
    )
    tables[schemas.SESSIONS].append(snapshot.sortWithinPartitions("session_date"), FOLD, 0, {"batch_id": 0})
    dates = RECENT if spread == "recent" else DATES
    old, per_date = changed * 3 // 4, sessions // DATES
    step = max(1, per_date * dates // old)
    # Three quarters change stored sessions, evenly on their dates; the others are new. One in twenty is a delete.
    nth = f"case when id < {old} then (id div {dates}) * {step} else {per_date} + (id - {old}) div {dates} end"
    ids = spark.range(changed).selectExpr(f"{DATES} * ({nth}) + {DATES - dates} + id % {dates} id")
    tail = rows(ids, sessions // 5, f"1 + pmod(xxhash64(id, 9), {BATCHES})", date).withColumns(
        {
            "op": F.expr("if(pmod(xxhash64(id, 7), 20) = 0, 'delete', 'upsert')"),
            "batch_id": F.col("revision"),
            "commit_id": F.lit("bench"),
        }
    )
    tail = tail.persist()
    last = tables[schemas.CHANGELOG].last_commit()
    columns = tables[schemas.CHANGELOG].read().columns
    for batch in range(1, BATCHES + 1):
        metadata = {**(last.metadata if last else {}), "batch_id": batch}
        frame = tail.where(f"batch_id = {batch}").select(*columns).coalesce(1)
        tables[schemas.CHANGELOG].append(frame, "bench", batch, metadata)
    tail.unpersist()
    return config


def copied(config: Config, root: Path, name: str) -> Config:
    """Return the pipeline under another warehouse, its files linked: Delta never changes a file."""
    target = root / name
    shutil.copytree(config.pipeline.warehouse, target, copy_function=os.link)
    return config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"warehouse": str(target)})})


def fingerprint(frame: DataFrame) -> list[Any]:
    return list(
        frame.agg(F.count(F.lit(1)), F.sum(F.xxhash64(*sorted(frame.columns)).cast("decimal(38,0)"))).collect()[0]
    )


def rows_written(tables: Tables) -> int:
    found = 0
    for version in tables[schemas.SESSIONS].versions():
        commit = tables[schemas.SESSIONS].commit(version)
        if commit is not None and commit.metadata.get("maintenance", {}).get("step") == "optimize":
            continue
        info = tables[schemas.SESSIONS].commit_info(version) or {}
        metrics = info.get("operationMetrics", {})
        if info.get("operation") == "MERGE":
            names = ("numTargetRowsUpdated", "numTargetRowsInserted", "numTargetRowsCopied")
            return sum(int(metrics[name]) for name in names)
        if info.get("operation") == "WRITE" and int(metrics.get("numOutputRows", 0)) > 0:
            return int(metrics["numOutputRows"])
    return found


def by_job(method: str) -> Callable[[SparkSession, Config], dict[str, Any]]:
    def action(spark: SparkSession, config: Config) -> dict[str, Any]:
        marks: list[tuple[str, float]] = []
        report = compact(spark, config, method=method, on_step=lambda step: marks.append((step, time.time())))
        marks.append(("end", time.time()))
        steps = {a: round(tb - ta, 2) for (a, ta), (_, tb) in pairwise(marks)}
        return {"steps_s": steps, "seconds": steps["fold"], "note": report.notes[0], "report": report.counts}

    return action


def tuned(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "true")
    session.conf.set("spark.sql.shuffle.partitions", "64")
    return session


def full_merge(spark: SparkSession, config: Config) -> dict[str, Any]:
    """One MERGE over the whole snapshot, as anyone would write it: without deletion vectors and dates."""
    session = tuned(spark)
    tables = Tables(session, config.pipeline.warehouse, CHANGELOG)
    started = time.time()
    latest_changes(changes(tables[schemas.CHANGELOG].read(), after=0), SESSIONS).createOrReplaceTempView("tail")
    statement = f"""
        merge into delta.`{tables[schemas.SESSIONS].uri}` t using tail s
        on t.session_key = s.session_key and t.session_start = s.session_start
        when matched and s.op = 'delete' then delete
        when matched then update set * when not matched and s.op = 'upsert' then insert *
    """
    session.sql(statement).collect()
    return {"seconds": round(time.time() - started, 2)}


def full_rewrite(spark: SparkSession, config: Config) -> dict[str, Any]:
    """The merged view written over the whole snapshot."""
    tables = Tables(tuned(spark), config.pipeline.warehouse, CHANGELOG)
    started = time.time()
    live = merged_rows(tables).repartition("session_date")
    live.write.format("delta").mode("overwrite").save(tables[schemas.SESSIONS].uri)
    return {"seconds": round(time.time() - started, 2)}


METHODS: dict[str, Callable[[SparkSession, Config], dict[str, Any]]] = {
    "compact, auto": by_job("auto"),
    "compact, merge": by_job("merge"),
    "compact, rewrite": by_job("rewrite"),
    "plain full MERGE": full_merge,
    "plain full rewrite": full_rewrite,
}


def measure(spark: SparkSession, work: Path, sessions: int, changed: int, spread: str) -> dict[str, Any]:
    root = work / spread
    config = build(spark, root, sessions, changed, spread)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    expected = fingerprint(merged_rows(tables))
    real = tables[schemas.CHANGELOG].read().where("batch_id > 0").count()
    result: dict[str, Any] = {"sessions": sessions, "changed": real, "spread": spread, "methods": {}}
    for name, method in METHODS.items():
        own = copied(config, root, name.replace(" ", "-").replace(",", ""))
        with peak_memory() as memory:
            one = method(spark, own)
        own_tables = Tables(spark, own.pipeline.warehouse, CHANGELOG)
        written = rows_written(own_tables)
        if fingerprint(own_tables[schemas.SESSIONS].read()) != expected:
            raise SystemExit(f"{name}: the snapshot is not what the changelog says")
        one |= {"rows_written": written, "rows_written_per_change": round(written / real, 2), "peak_memory_mb": memory}
        result["methods"][name] = one
        console.print(
            f"  {spread:<7} {name:<20} {one['seconds']:>8.1f} s  {written:>12,} rows  {memory['total']:,.0f} MB  {one.get('note', '')}"
        )
        shutil.rmtree(own.pipeline.warehouse)
    shutil.rmtree(root)
    return result


LAYOUTS = {
    "partitions by date": "partitioned by (session_date)",
    "partitions by date, Z-order by key": "partitioned by (session_date)",
    "liquid clustering by date and key": "cluster by (session_date, session_key)",
    "files by date, in order of key": "",
}
APPENDS = 8
"""As many small files of a date as so many folds by MERGE leave."""


def layouts(spark: SparkSession, work: Path, sessions: int) -> list[dict[str, Any]]:
    """Return cost and use of the ways to put files in order, with files so small that each date has about eight of them.

    Then the cost once more after an append on the last dates, of a hundredth of the rows.
    """
    session = spark.newSession()
    target = sessions * BYTES_PER_SESSION // (DATES * 8)
    session.conf.set("spark.databricks.delta.optimize.maxFileSize", str(target))
    session.conf.set("spark.databricks.delta.optimize.minFileSize", str(target // 2))
    source = rows(session.range(sessions), sessions // 5, "0", f"id % {DATES}").drop("id")
    found = []
    for name, clustering in LAYOUTS.items():
        tables = Tables(session, str(work / f"layout-{len(found)}"), CHANGELOG)
        table = tables[schemas.SESSIONS].sql_name()
        source.limit(0).createOrReplaceTempView("source")
        session.sql(f"create table {table} using delta {clustering} as select * from source")
        for part in range(APPENDS):
            _append(tables, source.where(f"pmod(session_id, {APPENDS}) = {part}"))
        one: dict[str, Any] = {"layout": name}
        one["optimize_s"], one["rewritten_mb"] = _optimized(tables, name, target)
        one["files"] = tables[schemas.SESSIONS].files().count()
        stored = tables[schemas.SESSIONS].read()
        keys = [F.col("session_key") == f"user-{n * 7919 % (sessions // 5)}" for n in range(LOOKUPS)]
        dates = [
            F.col("session_date") == row[0] for row in stored.select("session_date").distinct().limit(LOOKUPS).collect()
        ]
        for what, conditions in (("key", keys), ("date", dates)):
            read = [stored.where(condition).inputFiles() for condition in conditions]
            started = time.time()
            for condition in conditions:
                stored.where(condition).agg(F.sum("event_count"), F.max("session_end")).collect()
            one[f"files_read_by_{what}"] = sum(map(len, read)) / LOOKUPS
            one[f"look_up_{what}_s"] = round((time.time() - started) / LOOKUPS, 3)
        recent = f"id % {DATES} >= {DATES - RECENT} and pmod(id, 7) = 0"
        _append(tables, rows(session.range(sessions).where(recent), sessions // 5, "1", f"id % {DATES}").drop("id"))
        one["again_s"], one["again_mb"] = _optimized(tables, name, target)
        found.append(one)
        console.print(f"  {one}")
        shutil.rmtree(tables.warehouse)
    return found


def _append(tables: Tables, part: DataFrame) -> None:
    part.repartition(4, "session_date").write.format("delta").mode("append").save(tables[schemas.SESSIONS].uri)


def _optimized(tables: Tables, name: str, target: int) -> tuple[float, float]:
    """Put a table's files in order; return the seconds, and the MB that were rewritten."""
    started = time.time()
    if "files by date" in name:
        rewritten = rewrite_ragged(tables, target, lambda *_: {})
        return round(time.time() - started, 1), round(sum(file.bytes for file in rewritten) / 1e6, 1)
    order = " zorder by (session_key)" if "Z-order" in name else ""
    # Of partitions compact rewrites only those with new files.
    newest = "" if not order else f" where session_date in ({_ragged_dates(tables)})"
    metrics = tables.spark.sql(f"optimize {tables[schemas.SESSIONS].sql_name()}{newest}{order}").collect()[0].metrics
    removed = metrics.filesRemoved.totalSize if metrics.filesRemoved else 0
    return round(time.time() - started, 1), round(removed / 1e6, 1)


def _ragged_dates(tables: Tables) -> str:
    counts = tables[schemas.SESSIONS].files().groupBy(F.col("partitionValues")["session_date"].alias("date")).count()
    found = {row["date"]: row["count"] for row in counts.collect()}
    least = min(found.values())
    every = len(set(found.values())) == 1
    return ", ".join(f"date'{date}'" for date, count in found.items() if every or count > least)


def show(results: dict[str, Any]) -> None:
    table = Table(
        "changes on", "method", "seconds", "rows written", "per change", "peak MB", title="compaction, local[2]"
    )
    for one in results.get("fold", []):
        for name, m in one["methods"].items():
            where = f"{one['spread']} dates, {one['changed']:,} of {one['sessions']:,}"
            cells = f"{m['seconds']:.1f}", f"{m['rows_written']:,}", f"{m['rows_written_per_change']:.2f}"
            table.add_row(where, name, *cells, f"{m['peak_memory_mb']['total']:,.0f}")
    console.print(table)


def save(results: dict[str, Any]) -> None:
    """Write what there is so far, so that a run that is cut off leaves it."""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"compact-{results['at'].replace(':', '')[:17]}.json"
    file.write_text(json.dumps(results, indent=1) + "\n")
    console.print(f"written to {file}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=400_000)
    parser.add_argument("--only", choices=["fold", "layout"])
    parser.add_argument("--spread", choices=["recent", "all"], action="append")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="sessionlake-bench-"))
    spark = build_session("bench-compact", master="local[2]", shuffle_partitions=4, driver_memory="4g")
    results: dict[str, Any] = {"job": "compact", "at": datetime.now(UTC).isoformat(timespec="seconds")}
    results |= {"cpus": os.cpu_count(), "machine": platform.machine(), "dates": DATES, "batches": BATCHES}
    try:
        if arguments.only != "layout":
            spreads = arguments.spread or ["recent", "all"]
            results["fold"] = []
            for spread in spreads:
                results["fold"].append(measure(spark, work, arguments.sessions, arguments.changes, spread))
                save(results)
        if arguments.only != "fold":
            results["layout"] = layouts(spark, work, arguments.sessions)
        show(results)
        save(results)
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
