"""`make bench-keyed`: updates a second of a keyed table without [ttl], through Spark, Delta and stores: one of each key in a batch, and five.

Batches of a million updates in four files, of a million keys that are all there after the first one. Seconds are from one commit to the next,
medians of the last three quarters. Writes a JSON file to benchmarks/results/.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.cases import STREAM_SETTINGS, summary
from benchmarks.ours import Commits, open_session
from benchmarks.processes import input_folder, measure
from benchmarks.run import RESULTS, about
from benchmarks.synthetic import BASE_US
from benchmarks.trees import this_tree
from sessionlake.config.load import parse_config
from sessionlake.stream.run import run

Found = dict[str, Any]
GOALS = {1: 250_000, 5: 600_000}
"""Updates of a key in a batch, and the updates a second that are wanted."""
FILES = 4
SECONDS_PER_BATCH = 60


def updates(case: Found) -> Found:
    """Run over all updates there are."""
    spark, commits = open_session(case), Commits(case["batches"])
    files = {"path": case["events"], "format": "parquet", "max_files_per_batch": FILES}
    raw = {
        "pipeline": {"name": "bench", "warehouse": "warehouse", "shards": case["shards"], "trigger": "0 s"},
        "source": {"kind": "files", **files},
        "event": {"key": "key", "time": "ts"},
        "table": {"columns": ["status", "place", "amount", "price"], "retention": "1 hour"},
    }
    run(spark, parse_config(raw, Path(case["home"])), once=True, on_commit=commits)
    spark.stop()
    return commits.found()


def write_updates(folder: Path, batches: int, rows: int, of_a_key: int) -> None:
    """Write each batch's files, in no order of keys; times go up from batch to batch."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    for batch in range(batches):
        numbers = rng.permutation(np.repeat(rng.permutation(rows)[: rows // of_a_key], of_a_key))
        seconds = (batch + rng.random(len(numbers))) * SECONDS_PER_BATCH
        amount = numbers % 1000
        table = pa.table(
            {
                "key": np.char.mod("%012d-user", numbers),
                "ts": pa.array(BASE_US + (seconds * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC")),
                "status": pa.repeat("confirmed", len(numbers)),
                "place": np.char.add("place-", amount.astype(str)),
                "amount": amount,
                "price": rng.random(len(numbers)),
            }
        )
        for file in range(FILES):
            part = table.slice(file * len(table) // FILES, len(table) // FILES)
            pq.write_table(part, folder / f"{batch * FILES + file:05d}.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes: to try the benchmark itself")
    parser.add_argument("--batches", type=int, default=10)
    given = parser.parse_args()
    rows = 100_000 if given.quick else 1_000_000
    console = Console(highlight=False)
    told = about((this_tree(),), STREAM_SETTINGS, None) | {"rows": rows}
    found: Found = {}
    table = Table("updates of a key", "s a batch", "updates/s", "CPU s", "memory MB", "goal", "met")
    with input_folder() as work:
        for of_a_key, goal in GOALS.items():
            folder = work / str(of_a_key)
            write_updates(folder, given.batches, rows, of_a_key)
            case = {
                "kind": "updates",
                "events": str(folder),
                "batches": given.batches,
                "shards": 2,
                "driver_memory": "6g",
            }
            one = summary([measure(this_tree(), case | {"conf": STREAM_SETTINGS}, work)], rows)
            found[f"{of_a_key} a key"] = one | {"goal": goal}
            rate, memory = one["events_per_s"], float(one["peak_memory_mb"]["total"])
            table.add_row(
                *(str(of_a_key), f"{one['median_s']:.2f}", f"{rate:,}", f"{one['cpu_s']:.2f}", f"{memory:,.0f}"),
                *(f"{goal:,}", "yes" if rate >= goal else "NO"),
            )
    console.print(table)
    file = RESULTS / f"keyed-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    file.write_text(json.dumps(told | found, indent=1) + "\n")
    console.print(f"written to {file}", soft_wrap=True)


if __name__ == "__main__":
    main()
