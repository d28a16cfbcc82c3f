"""`make bench-chain`: a pipeline behind another one: what it costs to follow its results, beside what they cost.

    python -m benchmarks.chain [--quick] [--batches 6]

In front are sessions that keep the rows which they replace: each batch has a million events of 225,000 of a million keys, and half of the sessions that it changes were there
before. Behind are groups over `rows = "changes"`: 200 of them, and one for each key. After each batch in front both behind run once. The same
sessions run without kept rows, too, which says what keeping them costs. Seconds are
those of a batch from its start to its commit; CPU is that of all processes for the whole run of one batch, starts of queries included. Writes a
JSON file to benchmarks/results/.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
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
from benchmarks.synthetic import BASE_US
from sessionlake.config.load import load_config
from sessionlake.engine.spark import build_session
from sessionlake.stream.run import run

EVENTS, KEYS, CHANGED = 1_000_000, 1_000_000, 225_000
STEP_US = 20 * 60 * 1_000_000
WARM = 2
TIMES = ("seconds", "cpu_s")
GROUPS = {"200 groups": "(unix_micros(session_start) div 60000000) % 200", "a group for each key": "session_key"}
RESULTS = Path(__file__).parent / "results"
console = Console(highlight=False)
Found = dict[str, Any]


def write_configs(root: Path) -> None:
    (root / "events").mkdir()
    front = {
        "source": {"kind": "files", "path": "events", "format": "parquet"},
        "event": {"key": "key", "time": "ts"},
        "session": {"gap": "30 minutes", "grace": "2 hours", "retention": "1 day"},
        "aggregates": {"total": "sum(amount)"},
    }
    files = {
        "project": {"pipeline": {"shards": 2}},
        "plain": front,
        "front": {**front, "pipeline": {"keep_replaced": True}},
    }
    for number, key in enumerate(GROUPS.values()):
        files[f"behind{number}"] = {
            "source": {"kind": "results", "of": "front", "rows": "changes"},
            "event": {"key": "of", "columns": {"of": key}},
            "group": {},
            "aggregates": {"sessions": "count()", "total": "sum(total)"},
        }
    for name, content in files.items():
        (root / f"{name}.toml").write_text(tomli_w.dumps(content))


def write_batch(root: Path, number: int, scale: int) -> None:
    rng = np.random.default_rng(number)
    # Half of a batch's keys are those of the batch before it.
    every, some = KEYS // scale, CHANGED // scale
    of = (
        [np.random.default_rng(n).choice(every, some, replace=False) for n in (number - 1, number)]
        if number
        else [rng.choice(every, some, replace=False)] * 2
    )
    keys = np.concatenate([of[0][: some // 2], of[1][: some - some // 2]])
    users = np.concatenate([keys, rng.choice(keys, EVENTS // scale - some)])
    times = BASE_US + number * STEP_US + rng.integers(0, STEP_US, len(users))
    columns = {
        "key": pa.array(np.char.add("user-", users.astype(str))),
        "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
        "amount": pa.array(rng.integers(0, 100, len(users))),
    }
    pq.write_table(pa.table(columns), root / "events" / f"{number:05d}.parquet")


def timed(spark: SparkSession, file: Path) -> Found:
    batches: list[Any] = []
    before = tree_cpu_s()
    run(spark, load_config(file), once=True, on_commit=batches.append)
    (batch,) = batches
    return {
        "seconds": round((batch.committed_us - batch.started_us) / 1e6, 3),
        "cpu_s": round(tree_cpu_s() - before, 2),
        "input": batch.counts["input"],
        "changed": batch.counts.get("upserts", 0) + batch.counts.get("deletes", 0),
    }


def measure(spark: SparkSession, root: Path, batches: int, scale: int) -> Found:
    write_configs(root)
    names = {
        "nothing kept": "plain",
        "in front": "front",
        **{name: f"behind{number}" for number, name in enumerate(GROUPS)},
    }
    seen: dict[str, list[Found]] = {name: [] for name in names}
    for number in range(batches):
        write_batch(root, number, scale)
        for name, file in names.items():
            seen[name].append(timed(spark, root / f"{file}.toml"))
    found: Found = {}
    for name, each in seen.items():
        kept = each[WARM:]
        found[name] = {field: statistics.median(one[field] for one in kept) for field in kept[0]} | {"each": each}
    front, plain = found["in front"], found["nothing kept"]
    front["of_nothing_kept"] = {field: round(plain[field] / front[field], 3) for field in TIMES}
    for name in GROUPS:
        behind = found[name]
        behind["of_without"] = {field: round(front[field] / (front[field] + behind[field]), 3) for field in TIMES}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events")
    parser.add_argument("--batches", type=int, default=6)
    asked = parser.parse_args()
    load = os.getloadavg()
    spark = build_session("bench-chain", master="local[2]", shuffle_partitions=2, driver_memory="3g")
    try:
        with tempfile.TemporaryDirectory(prefix="sessionlake-chain-") as root:
            found = measure(spark, Path(root), asked.batches, 10 if asked.quick else 1)
    finally:
        spark.stop()
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": load}
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"chain-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    target.write_text(json.dumps({"at": datetime.now(UTC).isoformat(), "machine": machine, **found}, indent=1) + "\n")
    for name, one in found.items():
        console.print(f"{name}: {json.dumps({field: value for field, value in one.items() if field != 'each'})}")
    console.print(str(target))


if __name__ == "__main__":
    main()
