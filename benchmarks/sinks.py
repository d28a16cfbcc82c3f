"""`make bench-sinks`: the steps of sinks on this machine: a table of Delta and one with all versions, a table of PostgreSQL, a topic with transactions and without.

    python -m benchmarks.sinks [--sessions 500000] [--changed 100000]

Sessions, which keep the rows that they replace, are loaded in one step; then some of them grow, which is a second step. Seconds are those of each step from its begin to its commit,
its difference included; CPU is that of all processes, the server's too. Writes a JSON file to benchmarks/results/.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
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
from infra.kafka.broker import Broker
from infra.postgres.server import Server
from sessionlake.config.load import Config, load_config
from sessionlake.config.source import DeltaSink, KafkaSink, PostgresSink, SinkSection
from sessionlake.engine.spark import build_session
from sessionlake.jobs.publish import publish
from sessionlake.jobs.publish.database import PostgresTable
from sessionlake.jobs.publish.table import SinkTable
from sessionlake.jobs.publish.transactions import TransactionalTopic
from sessionlake.operators.run import run
from sessionlake.warehouse.tables import Tables

RESULTS = Path(__file__).parent / "results"
console = Console(highlight=False)


def write_batch(root: Path, name: str, keys: range, minute: int) -> None:
    times = pa.array([BASE_US + minute * 60_000_000] * len(keys)).cast(pa.timestamp("us", "UTC"))
    users = pa.array([f"user-{key}" for key in keys])
    amounts = pa.array([key % 100 for key in keys])
    pq.write_table(pa.table({"key": users, "ts": times, "amount": amounts}), root / "events" / f"{name}.parquet")


def stepped(sinks: Mapping[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    """Let each sink make a step."""
    found = {}
    for name, step in sinks.items():
        begun, before = time.monotonic(), tree_cpu_s()
        if not step():
            raise RuntimeError(f"{name}: there was no step")
        found[name] = {"seconds": round(time.monotonic() - begun, 2), "cpu_s": round(tree_cpu_s() - before, 2)}
    return found


def steps_of(
    spark: SparkSession, config: Config, root: Path, url: str, servers: str
) -> dict[str, Callable[[], object]]:
    """Return the steps of sinks, as a publisher that runs on makes them; the plain topic is published anew each time."""
    tables = Tables.of(spark, config)
    kafka = KafkaSink(bootstrap_servers=servers, topic="exact", transactions=True)
    sink = SinkSection(postgres=PostgresSink(url=url, table="sessions"), kafka=kafka)
    exact = config.model_copy(update={"sink": sink})
    tables_of_delta = {
        name: config.model_copy(update={"sink": SinkSection(delta=DeltaSink(path=f"{root}/{name}", history=history))})
        for name, history in (("delta", False), ("history", True))
    }
    plain = config.model_copy(update={"sink": SinkSection(kafka=KafkaSink(bootstrap_servers=servers, topic="plain"))})
    return {
        **{name: SinkTable(tables, of).step for name, of in tables_of_delta.items()},
        "postgres": PostgresTable(tables, exact).step,
        "transactions": TransactionalTopic(tables, exact, kafka).step,
        "kafka": lambda: publish(spark, plain, once=True).batches,
    }


def measure(spark: SparkSession, root: Path, url: str, servers: str, sessions: int, changed: int) -> dict[str, Any]:
    (root / "events").mkdir()
    raw = {
        "pipeline": {"name": "bench", "warehouse": "warehouse", "shards": 2, "keep_replaced": True},
        "source": {"kind": "files", "path": "events", "format": "parquet"},
        "event": {"key": "key", "time": "ts"},
        "session": {"gap": "30 minutes", "grace": "1 hour", "retention": "1 day"},
        "aggregates": {"total": "sum(amount)"},
    }
    file = root / "bench.toml"
    file.write_text(tomli_w.dumps(raw))
    found, sinks = dict[str, Any](), dict[str, Callable[[], object]]()
    for number, (name, keys) in enumerate(
        (("all rows", range(sessions)), ("warm", range(1000)), ("changes", range(changed)))
    ):
        write_batch(root, name, keys, minute=number)
        config = load_config(file)
        run(spark, config, once=True)
        sinks = sinks or steps_of(spark, config, root, url, servers)
        of_sinks = stepped(sinks)
        rates = {sink: {**one, "rows a second": round(len(keys) / one["seconds"])} for sink, one in of_sinks.items()}
        found[name] = {"rows": len(keys), **rates}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=500_000)
    parser.add_argument("--changed", type=int, default=100_000)
    asked, load = parser.parse_args(), os.getloadavg()
    spark = build_session("bench-sinks", master="local[2]", shuffle_partitions=2, driver_memory="3g")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="sessionlake-sinks-") as root,
            Server(Path(root, "pg")) as server,
            Broker(Path(root, "kafka"), java=("-Xmx1g",)) as broker,
        ):
            servers = broker.bootstrap_servers
            found = measure(spark, Path(root), server.url, servers, asked.sessions, asked.changed)
    finally:
        spark.stop()
    target = RESULTS / f"sinks-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    target.write_text(json.dumps({"cores": os.cpu_count(), "load": load, **found}, indent=1) + "\n")
    for name, one in found.items():
        console.print(f"{name}: {json.dumps(one)}")
    console.print(str(target))


if __name__ == "__main__":
    main()
