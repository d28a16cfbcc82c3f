"""`make bench-postgres`: the steps of a table of [sink.postgres], on a server of this machine.

    python -m benchmarks.postgres [--sessions 500000] [--changed 100000]

Sessions, which keep the rows that they replace, are loaded in one step; then some of them grow, which is a second step. Seconds are those of each step from its begin to the commit in
the database, its difference included; CPU is that of all processes, the server's too. Writes a JSON file to benchmarks/results/.
"""

import argparse
import json
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.cpu import tree_cpu_s
from benchmarks.synthetic import BASE_US
from infra.postgres.server import Server
from sessionlake.config.load import load_config
from sessionlake.engine.spark import build_session
from sessionlake.jobs.publish.database import PostgresTable
from sessionlake.operators.run import run
from sessionlake.warehouse.tables import Tables

RESULTS = Path(__file__).parent / "results"
console = Console(highlight=False)


def write_batch(root: Path, name: str, keys: range, minute: int) -> None:
    times = pa.array([BASE_US + minute * 60_000_000] * len(keys)).cast(pa.timestamp("us", "UTC"))
    users = pa.array([f"user-{key}" for key in keys])
    amounts = pa.array([key % 100 for key in keys])
    pq.write_table(pa.table({"key": users, "ts": times, "amount": amounts}), root / "events" / f"{name}.parquet")


def stepped(spark: SparkSession, file: Path) -> dict[str, Any]:
    config = load_config(file)
    run(spark, config, once=True)
    begun, before = time.monotonic(), tree_cpu_s()
    step = PostgresTable(Tables.of(spark, config), config).step()
    if step is None:
        raise RuntimeError("there was no step")
    return {"seconds": round(time.monotonic() - begun, 2), "cpu_s": round(tree_cpu_s() - before, 2)}


def measure(spark: SparkSession, root: Path, url: str, sessions: int, changed: int) -> dict[str, Any]:
    (root / "events").mkdir()
    raw = {
        "pipeline": {"name": "bench", "warehouse": "warehouse", "shards": 2, "keep_replaced": True},
        "source": {"kind": "files", "path": "events", "format": "parquet"},
        "event": {"key": "key", "time": "ts"},
        "session": {"gap": "30 minutes", "grace": "1 hour", "retention": "1 day"},
        "aggregates": {"total": "sum(amount)"},
        "sink": {"postgres": {"url": url, "table": "sessions"}},
    }
    file = root / "bench.toml"
    file.write_text(tomli_w.dumps(raw))
    found = {}
    for name, keys in (("all rows", range(sessions)), ("warm", range(1000)), ("changes", range(changed))):
        write_batch(root, name, keys, minute=len(found))
        found[name] = {"rows": len(keys), **stepped(spark, file)}
        found[name]["rows a second"] = round(len(keys) / found[name]["seconds"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=500_000)
    parser.add_argument("--changed", type=int, default=100_000)
    asked, load = parser.parse_args(), os.getloadavg()
    spark = build_session("bench-postgres", master="local[2]", shuffle_partitions=2, driver_memory="3g")
    try:
        with tempfile.TemporaryDirectory(prefix="sessionlake-postgres-") as root, Server(Path(root, "pg")) as server:
            found = measure(spark, Path(root), server.url, asked.sessions, asked.changed)
    finally:
        spark.stop()
    target = RESULTS / f"postgres-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    target.write_text(json.dumps({"cores": os.cpu_count(), "load": load, **found}, indent=1) + "\n")
    for name, one in found.items():
        console.print(f"{name}: {json.dumps(one)}")
    console.print(str(target))


if __name__ == "__main__":
    main()
