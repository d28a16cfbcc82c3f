"""`make bench`: this engine against Spark's session_window, tiny batches, and cost against state; a table and a JSON file.

Every comparison is made within one run, on local[2]; absolute figures belong to the machine, ratios travel.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
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
from benchmarks.native import run_native
from benchmarks.synthetic import BASE_US, write_events
from sessionlake.config import Config, parse_config
from sessionlake.engine.spark import build_session
from sessionlake.jobs.sessionizer.run import run

GAP, GRACE, RETENTION = "30 minutes", "2 hours", "1 day"
FILES_PER_BATCH = 4
WARM_UP = 2
RESULTS = Path(__file__).parent / "results"
console = Console(highlight=False)


def make_config(root: Path, events: Path, shards: int, trigger: str = "0 s", files: int = FILES_PER_BATCH) -> Config:
    return parse_config(
        {
            "pipeline": {"name": "bench", "warehouse": "warehouse", "shards": shards, "trigger": trigger},
            "source": {"kind": "files", "path": str(events), "format": "parquet", "max_files_per_batch": files},
            "event": {"key": "key", "time": "ts"},
            "session": {"gap": GAP, "grace": GRACE, "retention": RETENTION},
            "aggregates": {"total": "sum(amount)"},
        },
        root,
    )


def seconds(metadata: dict[str, Any]) -> float:
    return (metadata["committed_us"] - metadata["started_us"]) / 1e6


def run_ours(spark: SparkSession, config: Config) -> list[float]:
    """Return the seconds from one commit to the next: all that a batch costs, the stream's bookkeeping too."""
    commits: list[float] = []
    started = time.time()
    run(spark, config, once=True, on_commit=lambda metadata: commits.append(metadata["committed_us"] / 1e6))
    return [round(b - a, 3) for a, b in zip([started, *commits], commits, strict=False)]


def throughput(spark: SparkSession, work: Path, events: int, users: int, batches: int, shards: int) -> dict[str, Any]:
    source = work / f"events-{events}"
    write_events(source, batches, events, users, FILES_PER_BATCH)
    ours_root, native_root = work / f"ours-{events}", work / f"native-{events}"
    ours_root.mkdir()
    with peak_memory() as memory:
        ours = run_ours(spark, make_config(ours_root, source, shards))
    with peak_memory() as native_memory:
        native = run_native(spark, source, native_root, FILES_PER_BATCH, GAP, GRACE)
    shutil.rmtree(source)
    shutil.rmtree(native_root)
    median_ours, median_native = statistics.median(ours[WARM_UP:]), statistics.median(native[WARM_UP:])
    return {
        "events_per_batch": events,
        "users": users,
        "batches": batches,
        "ours_s": ours,
        "native_s": native,
        "ours_events_per_s": round(events / median_ours),
        "native_events_per_s": round(events / median_native),
        "ratio": round(median_native / median_ours, 2),
        "peak_memory_mb": memory,
        "native_peak_memory_mb": native_memory,
    }


def latency(spark: SparkSession, work: Path, shards: int) -> dict[str, Any]:
    """Time from a file's appearance to its Delta commit, in a running stream: a few events, and 10k."""
    root, source = work / "latency", work / "latency-events"
    source.mkdir()
    root.mkdir()
    staged = work / "latency-staged"
    write_events(staged, 24, 10_000, 100_000, 1)
    files = sorted(staged.iterdir())
    for small in files[12:]:
        pq.write_table(pq.read_table(small).slice(0, 10), small)
    landed: dict[int, float] = {}
    took: dict[int, float] = {}
    committed = threading.Event()

    def on_commit(metadata: dict[str, Any]) -> None:
        took[metadata["batch_id"]] = metadata["committed_us"] / 1e6
        committed.set()

    def feed() -> None:
        for i, file in enumerate(files):
            committed.clear()
            landed[i] = time.time()
            os.utime(file)
            file.rename(source / file.name)
            committed.wait(60)
        for query in spark.streams.active:
            query.stop()

    shutil.copy(files[0], source / "first.parquet")
    config = make_config(root, source, shards, trigger="0 s", files=1)
    run(spark, config, once=True)
    feeder = threading.Thread(target=feed)
    feeder.start()
    run(spark, config, on_commit=on_commit)
    feeder.join()
    times = [round(took[i + 1] - at, 3) for i, at in landed.items() if i + 1 in took]
    return {"events_10k_s": times[WARM_UP:12], "events_10_s": times[12 + WARM_UP :]}


def cost_of_state(spark: SparkSession, work: Path, stored: int, batches: int, shards: int) -> list[float]:
    """Return batch seconds of the same batches (1M users) after `stored` sessions of as many users were stored."""
    root, source = work / f"state-{stored}", work / f"state-{stored}-events"
    source.mkdir()
    root.mkdir()
    for i, at in enumerate(range(0, stored, 500_000)):
        users = pa.array(range(at, min(stored, at + 500_000)))
        keys = pc.binary_join_element_wise("user-", users.cast(pa.string()), "")
        times = pa.array([BASE_US] * len(users)).cast(pa.timestamp("us", "UTC"))
        amounts = pa.array([1] * len(users))
        pq.write_table(pa.table({"key": keys, "ts": times, "amount": amounts}), source / f"a-{i:05d}.parquet")
    run(spark, make_config(root, source, shards), bootstrap=True)
    events = work / "state-batches"
    if not events.exists():
        write_events(events, batches, 500_000, 1_000_000, FILES_PER_BATCH, seed=11)
    later = time.time() + 10
    for i, file in enumerate(sorted(events.iterdir())):
        copied = shutil.copy(file, source / f"b-{i:05d}.parquet")
        os.utime(copied, (later + i, later + i))
    return run_ours(spark, make_config(root, source, shards))


def show(results: dict[str, Any]) -> None:
    table = Table("measurement", "this engine", "session_window", "ratio", title="sessionlake, local[2]")
    for one in results["throughput"]:
        name = f"{one['events_per_batch']:,} events a batch, events/s"
        table.add_row(name, f"{one['ours_events_per_s']:,}", f"{one['native_events_per_s']:,}", f"{one['ratio']:.2f}x")
        name = "  peak memory, JVM + Python, MB"
        table.add_row(
            name, f"{one['peak_memory_mb']['total']:,.0f}", f"{one['native_peak_memory_mb']['total']:,.0f}", ""
        )
    if "latency" in results:
        for name, label in (
            ("events_10_s", "10 events, file to commit, s"),
            ("events_10k_s", "10,000 events, file to commit, s"),
        ):
            values = results["latency"][name]
            table.add_row(label, f"{statistics.median(values):.2f} (max {max(values):.2f})", "", "")
    if "state" in results:
        state = results["state"]
        table.add_row(
            f"batch with {state['large']:,} stored against {state['small']:,}", f"{state['ratio']:.2f}x", "", ""
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes: to try the benchmark itself")
    parser.add_argument("--only", choices=["throughput", "latency", "state"])
    parser.add_argument("--shards", type=int, default=2)
    arguments = parser.parse_args()
    scale = 10 if arguments.quick else 1
    work = Path(tempfile.mkdtemp(prefix="sessionlake-bench-"))
    spark = build_session("bench", master="local[2]", shuffle_partitions=arguments.shards, driver_memory="6g")
    results: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "cpus": os.cpu_count()}
    results |= {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "shards": arguments.shards,
        "scale": scale,
    }
    parts: dict[str, Callable[[], Any]] = {
        "throughput": lambda: [
            throughput(spark, work, events // scale, 1_000_000 // scale, 10, arguments.shards)
            for events in (1_000_000, 200_000)
        ],
        "latency": lambda: latency(spark, work, arguments.shards),
        "state": lambda: state_ratio(spark, work, scale, arguments.shards),
    }
    try:
        for name, part in parts.items():
            if arguments.only in (None, name):
                console.print(f"measuring {name} ...")
                results[name] = part()
                if name == "throughput":
                    show(results)
        results.setdefault("throughput", [])
        show(results)
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
        file.write_text(json.dumps(results, indent=1) + "\n")
        console.print(f"written to {file}")
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


def state_ratio(spark: SparkSession, work: Path, scale: int, shards: int) -> dict[str, Any]:
    small, large = 1_000_000 // scale, 10_000_000 // scale
    times = {stored: cost_of_state(spark, work, stored, 8, shards) for stored in (small, large)}
    medians = {stored: statistics.median(values[WARM_UP:]) for stored, values in times.items()}
    ratio = round(medians[large] / medians[small], 2)
    return {"small": small, "large": large, "ratio": ratio, "small_s": times[small], "large_s": times[large]}


if __name__ == "__main__":
    main()
