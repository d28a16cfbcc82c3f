"""What a stored session costs on disk: in the stores, the changelog and the snapshot; for docs/sizing.md.

    python -m benchmarks.sizing [--sessions 10000000]

Three sets: one lean session a key (a count and a sum), bursts of five events (the same), and the demo's real commit
events with its seven aggregates, their authors multiplied. Prints a table and writes a JSON file.
"""

import argparse
import gzip
import json
import os
import platform
import re
import shutil
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.memory import peak_memory
from benchmarks.synthetic import BASE_US, EVENTS_PER_SESSION, write_events
from sessionlake.config.file import PROJECT_FILE
from sessionlake.config.load import Config, load_config, parse_config
from sessionlake.config.shipped import shipped_directory
from sessionlake.engine.spark import build_session
from sessionlake.examples.demo import CONFIG_NAME, EXAMPLES
from sessionlake.jobs.compact import compact
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables

FOREVER = "36500 days"
RESULTS = Path(__file__).parent / "results"
SHARDS = 4
FIELDS = {
    "sessions": "sessions",
    "events": "events",
    "store, B a session": "store_bytes_per_session",
    "changelog, B a change": "changelog_bytes_per_change",
    "snapshot, B a session": "snapshot_bytes_per_session",
    "bootstrap, s": "bootstrap_s",
    "restore, s": "restore_all_s",
    "compact, s": "compact_s",
}
console = Console(highlight=False)


def lean_config(root: Path) -> Config:
    return parse_config(
        {
            "pipeline": {"name": "sizing", "warehouse": "warehouse", "shards": SHARDS},
            "source": {"kind": "files", "path": "events", "format": "parquet", "max_files_per_batch": 1},
            "event": {"key": "key", "time": "ts"},
            "session": {"gap": "30 minutes", "grace": "2 hours", "retention": FOREVER},
            "aggregates": {"total": "sum(amount)"},
        },
        root,
    )


def one_session_a_key(root: Path, sessions: int) -> Config:
    (root / "events").mkdir(parents=True)
    for i, at in enumerate(range(0, sessions, 500_000)):
        users = pa.array(range(at, min(sessions, at + 500_000)))
        keys = pc.binary_join_element_wise("user-", users.cast(pa.string()), "")
        times = pc.add(pa.array([BASE_US] * len(users)), pc.multiply(users, 1000)).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"key": keys, "ts": times, "amount": pa.array([1] * len(users))})
        pq.write_table(table, root / "events" / f"a-{i:05d}.parquet")
    return lean_config(root)


def bursts(root: Path, sessions: int) -> Config:
    write_events(root / "events", 10, sessions * EVENTS_PER_SESSION // 10, sessions // 3, 2)
    return lean_config(root)


def commits(root: Path, copies: int) -> Config:
    """Write the commit events `copies` times, each time with other authors."""
    (root / "events").mkdir(parents=True)
    pipelines = shipped_directory("pipelines")
    shutil.copyfile(pipelines / PROJECT_FILE, root / PROJECT_FILE)
    (root / CONFIG_NAME).write_text(_demos_config((pipelines / CONFIG_NAME).read_text()))
    text = "".join(gzip.decompress(file.read_bytes()).decode() for file in sorted(EXAMPLES.glob("*.json.gz")))
    for copy in range(copies):
        (root / "events" / f"{copy:03d}.json").write_text(text.replace('"author":"', f'"author":"{copy:03d}'))
    return load_config(root / CONFIG_NAME)


def _demos_config(text: str) -> str:
    """Return the demo's config with a list among its aggregates, and a retention of all times."""
    text = text.replace('"count_distinct(ext)"', '"collect(ext, 5)"')
    return re.sub(r"^retention = .*", f'retention = "{FOREVER}"', text, flags=re.MULTILINE)


def few_more(config: Config, number: int) -> None:
    """Add a file of a few of the events: one more batch, which also applies to the stores what the last one left pending."""
    events = Path(config.source.path)
    first = min(events.iterdir())
    later = events / f"z{number}{first.suffix}"
    if first.suffix == ".parquet":
        pq.write_table(pq.read_table(first).slice(0, 2000), later)
    else:
        with first.open() as lines, later.open("w") as few:
            few.writelines(line for i, line in enumerate(lines) if i % 20 == 0)
    os.utime(later, (time.time() + 5 + number, time.time() + 5 + number))


def timed_batches(spark: SparkSession, config: Config) -> list[float]:
    """Run what is waiting; return the seconds of each batch."""
    took: list[float] = []
    run(spark, config, once=True, on_commit=lambda b: took.append((b.committed_us - b.started_us) / 1e6))
    return took


def table_bytes(spark: SparkSession, tables: Tables, name: str) -> int:
    """Return the bytes of the table's files as of its last version."""
    return int(spark.sql(f"describe detail delta.`{tables[name].uri}`").head()["sizeInBytes"])  # type: ignore[index]


def measure(spark: SparkSession, config: Config) -> dict[str, Any]:
    started = time.time()
    with peak_memory() as memory:
        run(spark, config, bootstrap=True)
    stored_s = time.time() - started
    few_more(config, 0)
    timed_batches(spark, config)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    changelog = table_bytes(spark, tables, schemas.CHANGELOG)
    changes = tables[schemas.CHANGELOG].read().count()
    stores = [p for p in Path(config.driver_store_dir).iterdir() if p.is_dir() and p.name.isdigit()]
    store = sum(f.stat().st_size for folder in stores for f in folder.rglob("*") if f.is_file())
    few_more(config, 1)
    (with_stores,) = timed_batches(spark, config)
    shutil.rmtree(config.driver_store_dir)
    few_more(config, 2)
    with peak_memory() as restore_memory:
        (without,) = timed_batches(spark, config)
    started = time.time()
    compact(spark, config)
    compact_s = time.time() - started
    rows = tables[schemas.SESSIONS].read().selectExpr("count(*) n", "sum(event_count) events").collect()[0]
    return {
        "sessions": rows.n,
        "events": rows.events,
        "bootstrap_s": round(stored_s, 1),
        "compact_s": round(compact_s, 1),
        "restore_all_s": round(without - with_stores, 1),
        "restore_peak_memory_mb": restore_memory,
        "bootstrap_peak_memory_mb": memory,
        "store_bytes_per_session": round(store / rows.n, 1),
        "changelog_bytes_per_change": round(changelog / changes, 1),
        "snapshot_bytes_per_session": round(table_bytes(spark, tables, schemas.SESSIONS) / rows.n, 1),
    }


def cost_of_a_shard(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Return the seconds of batches of 10,000 events with few and with many shards, and so a shard task's core-seconds."""
    medians: dict[int, float] = {}
    for shards in (2, 64):
        place = root / str(shards)
        write_events(place / "events", 12, 10_000, 100_000, 1)
        config = lean_config(place)
        config = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"shards": shards})})
        medians[shards] = statistics.median(timed_batches(spark, config)[4:])
    cores = spark.sparkContext.defaultParallelism
    each = (medians[64] - medians[2]) * cores / 62
    return {"batch_s": {str(k): round(v, 3) for k, v in medians.items()}, "core_ms_a_shard_task": round(each * 1000, 1)}


def show(results: dict[str, Any]) -> None:
    table = Table("set", *FIELDS)
    for name, one in results["sets"].items():
        table.add_row(name, *(f"{one[field]:,}" for field in FIELDS.values()))
    console.print(table)
    console.print(f"a shard's task costs {results['shard']['core_ms_a_shard_task']} ms of a core in each batch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=10_000_000, help="of the first set; the others have fewer")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="sessionlake-sizing-"))
    spark = build_session("sizing", master="local[2]", shuffle_partitions=SHARDS, driver_memory="6g")
    results: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "cpus": os.cpu_count()}
    results |= {"machine": platform.machine(), "shards": SHARDS, "sets": {}}
    n = arguments.sessions
    sets = {
        "commits": lambda root: commits(root, max(1, n // 400_000)),
        "bursts": lambda root: bursts(root, n // 10),
        "one session a key": lambda root: one_session_a_key(root, n),
    }
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"sizing-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    try:
        for number, (name, make) in enumerate(sets.items()):
            console.print(f"measuring {name} ...")
            root = work / str(number)
            root.mkdir()
            results["sets"][name] = measure(spark, make(root))
            shutil.rmtree(root)
            file.write_text(json.dumps(results, indent=1) + "\n")
        console.print("measuring the cost of a shard ...")
        results["shard"] = cost_of_a_shard(spark, work / "shards")
        file.write_text(json.dumps(results, indent=1) + "\n")
        show(results)
        console.print(f"written to {file}")
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
