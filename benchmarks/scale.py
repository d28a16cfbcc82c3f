"""A stream whose state grows to 100M stored sessions: batches, bytes, memory, restore, compaction and look-ups on the way.

    python -m benchmarks.scale [--sessions 100000000] [--shards 16] [--jobs]

Batches of 2.5M events bring new keys. At 1M, 10M, 30M and all sessions, 16 batches of 500,000 events follow in one run of the stream, half of known
keys, spread over all of them. At the end one key is looked up; with --jobs all stores are lost and restored and the changelog is compacted, too. Prints
lines, and writes a JSON file after each step. 100M sessions need about 40 GB of disk.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.cpu import tree_cpu_s
from benchmarks.memory import peak_memory
from benchmarks.processes import input_folder
from benchmarks.sizing import table_bytes, timed_batches
from benchmarks.synthetic import BASE_US
from sessionlake.config.load import Config, parse_config
from sessionlake.engine.spark import LITTLE_JAVA, build_session
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.serve.queries import find_rows
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables

RESULTS = Path(__file__).parent / "results"
LOADED, PROBED = 2_500_000, 500_000
"""Events of a batch that brings new keys, and of one that is measured."""
MARKS = (1_000_000, 10_000_000, 30_000_000)
FILES = 4
CONFIG = "scale.toml"
console = Console(highlight=False)


def config_of(root: Path, shards: int) -> Config:
    """Return sessions that never expire; a batch has FILES files."""
    told = {
        "pipeline": {"name": "scale", "warehouse": "warehouse", "shards": shards, "trigger": "0 s"},
        "source": {"kind": "files", "path": "events", "format": "parquet", "max_files_per_batch": FILES},
        "event": {"key": "key", "time": "ts"},
        "session": {"gap": "30 minutes", "grace": "2 hours", "retention": "36500 days"},
        "aggregates": {"total": "sum(amount)"},
    }
    (root / CONFIG).write_text(tomli_w.dumps(told))
    return parse_config(told, root)


def spark_of_stream() -> SparkSession:
    return build_session(
        "scale", master="local[2]", shuffle_partitions=2, driver_memory="4g", extra_conf=dict(LITTLE_JAVA)
    )


def compacted(root: Path) -> dict[str, Any]:
    """Compact as a user does, in a process of its own."""
    began = time.monotonic()
    with peak_memory() as memory:
        command = [sys.executable, "-m", "sessionlake", "compact", CONFIG]
        subprocess.run(command, cwd=root, check=True)
    return {"seconds": round(time.monotonic() - began, 1), "peak_memory_mb": memory}


class Growing:
    """The stream, and its events so far."""

    def __init__(self, spark: SparkSession, root: Path, shards: int) -> None:
        self.spark, self.config = spark, config_of(root, shards)
        self.events = Path(self.config.source.path)
        self.events.mkdir(parents=True)
        self.rng = np.random.default_rng(0)
        self.keys = self.sessions = self.minutes = self.files = 0

    def write(self, numbers: np.ndarray[Any, Any]) -> None:
        """Write a batch of one event for each number, half an hour and more after the last one, so that each begins a session."""
        self.minutes += 40
        for part in np.array_split(numbers, FILES):
            keys = pa.array(np.char.add("user-", part.astype(str)))
            times = pa.array(np.full(len(part), BASE_US + self.minutes * 60_000_000)).cast(pa.timestamp("us", "UTC"))
            target = self.events / f"{self.files:07d}.parquet"
            pq.write_table(pa.table({"key": keys, "ts": times, "amount": part % 100}), target)
            os.utime(target, (1_700_000_000 + self.files,) * 2)
            self.files += 1
        self.sessions += len(np.unique(numbers))

    def load(self, sessions: int) -> list[float]:
        """Run batches of new keys until there are so many sessions, and return the seconds of each."""
        took: list[float] = []
        while self.sessions < sessions:
            many = min(LOADED, sessions - self.sessions)
            self.write(np.arange(self.keys, self.keys + many))
            self.keys += many
            took += timed_batches(self.spark, self.config)
            for file in self.events.iterdir():
                file.unlink()  # they are of committed batches
        return took

    def probe(self, batches: int = 16) -> dict[str, Any]:
        """Run batches of events, half of known keys and half of new ones; the figures are those of the second half.

        In the first ones each worker maps and verifies what it reads, and the very first applies the writes of a large batch.
        """
        for _ in range(batches):
            known, fresh = self.rng.integers(0, self.keys, PROBED // 2), np.arange(self.keys, self.keys + PROBED // 2)
            self.keys += PROBED // 2
            self.write(np.concatenate([known, fresh]))
        took, cpu = [], []

        def on_commit(batch: Any) -> None:
            took.append((batch.committed_us - batch.started_us) / 1e6)
            cpu.append(tree_cpu_s())

        run(self.spark, self.config, once=True, on_commit=on_commit)
        half = batches // 2
        return {
            "seconds": [round(s, 3) for s in took],
            "median_s": round(statistics.median(took[half:]), 3),
            "cpu_s": round((cpu[-1] - cpu[half - 1]) / (batches - half), 2),
        }

    def bytes(self) -> dict[str, float]:
        """Return the bytes of stores and changelog a session."""
        store = sum(f.stat().st_size for f in Path(self.config.driver_store_dir).rglob("*") if f.is_file())
        changelog = table_bytes(self.spark, self.tables, schemas.CHANGELOG)
        return {"store": round(store / self.sessions, 1), "changelog": round(changelog / self.sessions, 1)}

    @property
    def tables(self) -> Tables:
        return Tables(self.spark, self.config.pipeline.warehouse, CHANGELOG)

    def restored(self) -> dict[str, Any]:
        """Lose all stores, and measure the batch that restores them."""
        shutil.rmtree(self.config.driver_store_dir)
        self.write(np.arange(1000))
        with peak_memory() as memory:
            (took,) = timed_batches(self.spark, self.config)
        return {"seconds": round(took, 1), "sessions_a_second": round(self.sessions / took), "peak_memory_mb": memory}

    def looked_up(self) -> float:
        """Return the median seconds of a look-up of one key in the tables, without a JVM."""
        took = []
        for number in self.rng.integers(0, self.keys, 5).tolist():
            began = time.monotonic()
            if not find_rows(self.config, f"user-{number}", None, None, 10)[1]:
                raise RuntimeError(f"user-{number} has no session")
            took.append(time.monotonic() - began)
        return round(statistics.median(took), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100_000_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--jobs", action="store_true", help="also restore all stores, and compact")
    asked = parser.parse_args()
    file = RESULTS / f"scale-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    found: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "cpus": os.cpu_count()}
    found |= {
        "machine": platform.machine(),
        "load_before": round(os.getloadavg()[0], 2),
        "shards": asked.shards,
        "at_sessions": {},
    }

    def note(name: str, value: Any, at: dict[str, Any] | None = None) -> None:
        (found if at is None else at)[name] = value
        file.write_text(json.dumps(found, indent=1) + "\n")
        console.print(f"{name}: {json.dumps(value)}")

    with input_folder() as work:
        spark = spark_of_stream()
        try:
            stream = Growing(spark, work, asked.shards)
            with peak_memory() as memory:
                for mark in (*(mark for mark in MARKS if mark < asked.sessions), asked.sessions):
                    at = found["at_sessions"].setdefault(f"{mark:,}", {})
                    took = stream.load(mark)
                    if took:
                        note("batches that bring 2.5M keys, s", [round(s, 2) for s in took], at)
                    note("batches of 500,000 events", stream.probe(), at)
                    note("bytes a session", stream.bytes(), at)
            note("peak_memory_mb", memory)
            note("sessions", stream.sessions)
            note("look-up before compaction, s", stream.looked_up())
            if not asked.jobs:
                return
            note("restore of all stores", stream.restored())
            spark.stop()
            note("compaction", compacted(work))
            spark = stream.spark = spark_of_stream()
            note("look-up after compaction, s", stream.looked_up())
            snapshot = table_bytes(spark, stream.tables, schemas.SESSIONS)
            note("snapshot, bytes a session", round(snapshot / stream.sessions, 1))
            note("restore from the snapshot", stream.restored())
        finally:
            spark.stop()
    console.print(f"written to {file}")


if __name__ == "__main__":
    main()
