"""`make bench-sinks`: the steps of sinks on this machine: tables of Delta and one with all versions, a table of PostgreSQL, a topic with transactions and without.

    python -m benchmarks.sinks [--sessions 500000] [--changed 100000] [--warm 4] [--steps 5] [--only delta --only history] [--find-replaced]

Sessions are loaded in one step. Then the same share of them grows again and again, with a step each time: the first of these steps is told alone, `warm` ones
are left out while Java compiles, and the median of the others counts. Seconds are those of a step from its begin to its commit, its difference included; CPU is
that of all processes, the server's too. The sessions keep the rows that they replace unless `--find-replaced`, which is the default of a pipeline.
`--only` names the sinks to measure; the tables of Delta need neither PostgreSQL nor Kafka. Writes a JSON file to benchmarks/results/.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
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
from sessionlake.stream.run import run
from sessionlake.warehouse.tables import Tables

RESULTS = Path(__file__).parent / "results"
TABLES: dict[str, dict[str, Any]] = {
    "delta": {},
    "delta, change feed": {"change_feed": True},
    "delta, deletion vectors": {"deletion_vectors": True},
    "history": {"history": True},
}
"""The options of the tables of Delta."""
OTHERS = ("postgres", "transactions", "kafka")
console = Console(highlight=False)


def write_batch(root: Path, name: str, keys: range, minute: int) -> None:
    # Within a second, in no order of the keys: so a step can leave no file out.
    times = [BASE_US + minute * 60_000_000 + key * 7919 % 1000 * 1000 for key in keys]
    users = pa.array([f"user-{key}" for key in keys])
    amounts = pa.array([key % 100 for key in keys])
    table = pa.table({"key": users, "ts": pa.array(times).cast(pa.timestamp("us", "UTC")), "amount": amounts})
    pq.write_table(table, root / "events" / f"{name}.parquet")


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
    spark: SparkSession, config: Config, root: Path, servers: Mapping[str, str]
) -> dict[str, Callable[[], object]]:
    """Return the steps of sinks, as a publisher that runs on makes them; the plain topic is published anew each time."""
    tables = Tables.of(spark, config)

    def of(**sections: Any) -> Config:
        return config.model_copy(update={"sink": SinkSection(**sections)})

    found: dict[str, Callable[[], object]] = {
        name: SinkTable(tables, of(delta=DeltaSink(path=f"{root}/{name}", **options))).step
        for name, options in TABLES.items()
    }
    if servers:
        kafka = KafkaSink(bootstrap_servers=servers["kafka"], topic="exact", transactions=True)
        exact = of(postgres=PostgresSink(url=servers["postgres"], table="sessions"), kafka=kafka)
        plain = of(kafka=KafkaSink(bootstrap_servers=servers["kafka"], topic="plain"))
        found["postgres"] = PostgresTable(tables, exact).step
        found["transactions"] = TransactionalTopic(tables, exact, kafka).step
        found["kafka"] = lambda: publish(spark, plain, once=True).batches
    return found


def measure(spark: SparkSession, root: Path, servers: Mapping[str, str], asked: argparse.Namespace) -> dict[str, Any]:
    (root / "events").mkdir()
    raw = {
        "pipeline": {
            "name": "bench",
            "warehouse": "warehouse",
            "shards": 2,
            "keep_replaced": not asked.find_replaced,
        },
        "source": {"kind": "files", "path": "events", "format": "parquet"},
        "event": {"key": "key", "time": "ts"},
        "session": {"gap": "30 minutes", "grace": "1 hour", "retention": "1 day"},
        "aggregates": {"total": "sum(amount)"},
    }
    file = root / "bench.toml"
    file.write_text(tomli_w.dumps(raw))
    steps, sinks = list[dict[str, dict[str, float]]](), dict[str, Callable[[], object]]()
    for number in range(1 + asked.warm + asked.steps):
        keys = range(asked.changed if number else asked.sessions)
        write_batch(root, f"{number:03d}", keys, minute=number)
        config = load_config(file)
        run(spark, config, once=True)
        sinks = sinks or {
            name: step for name, step in steps_of(spark, config, root, servers).items() if name in asked.only
        }
        steps.append(stepped(sinks))
        console.print(f"step {number} of {len(keys):,} rows: {json.dumps(steps[-1])}")
    return {
        "all rows": {"rows": asked.sessions, **_middle(steps[:1], asked.sessions)},
        "first changes": {"rows": asked.changed, **_middle(steps[1:2], asked.changed)},
        "changes": {"rows": asked.changed, **_middle(steps[1 + asked.warm :], asked.changed)},
        "steps": steps,
    }


def _middle(steps: list[dict[str, dict[str, float]]], rows: int) -> dict[str, dict[str, float]]:
    """Return the medians of some steps of each sink."""
    found = dict[str, dict[str, float]]()
    for sink in steps[0]:
        medians = {name: round(statistics.median(one[sink][name] for one in steps), 2) for name in steps[0][sink]}
        found[sink] = {**medians, "rows a second": round(rows / medians["seconds"])}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=500_000)
    parser.add_argument("--changed", type=int, default=100_000)
    parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", action="append", choices=[*TABLES, *OTHERS])
    parser.add_argument("--find-replaced", action="store_true")
    asked, load = parser.parse_args(), os.getloadavg()
    asked.only = asked.only or [*TABLES, *OTHERS]
    spark = build_session("bench-sinks", master="local[2]", shuffle_partitions=2, driver_memory="3g")
    try:
        with ExitStack() as stack:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sessionlake-sinks-")))
            servers = dict[str, str]()
            if {*asked.only} & {*OTHERS}:
                server = stack.enter_context(Server(root / "pg"))
                broker = stack.enter_context(Broker(root / "kafka", java=("-Xmx1g",)))
                servers = {"postgres": server.url, "kafka": broker.bootstrap_servers}
            found = measure(spark, root, servers, asked)
    finally:
        spark.stop()
    settings = {"keep_replaced": not asked.find_replaced, "warm": asked.warm}
    target = RESULTS / f"sinks-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    target.write_text(json.dumps({"cores": os.cpu_count(), "load": load, **settings, **found}, indent=1) + "\n")
    for name in ("all rows", "first changes", "changes"):
        console.print(f"{name}: {json.dumps(found[name])}")
    console.print(str(target))


if __name__ == "__main__":
    main()
