"""`make bench-chain` measures this, too: how long after a commit in front the pipeline behind has committed it, with both in one driver.

    python -m benchmarks.chain_latency [--batches 20] [--trigger "10 seconds"]

In front are sessions: each batch changes 10,000 of them. Behind are 200 groups over `rows = "changes"`. A batch in front comes when the one before
it was committed behind, so none of them wait for one another. The latency is the time from the one commit to the other, as the tables' logs have
them. Then nothing comes for half a minute, and the CPU of that time is what looking for news costs. Writes a JSON file to benchmarks/results/.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
from rich.console import Console

from benchmarks.cpu import tree_cpu_s
from benchmarks.processes import command
from benchmarks.synthetic import BASE_US
from sessionlake.config.load import Config
from sessionlake.config.project import load_project
from sessionlake.warehouse.batches import batches_after, find_last_batch
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.seen import Visible

CHANGED, WARM, IDLE_S = 10_000, 3, 30
STEP_US = 20 * 60 * 1_000_000
RESULTS = Path(__file__).parent / "results"
console = Console(highlight=False)


def write_configs(root: Path, trigger: str | None) -> None:
    (root / "events").mkdir()
    front = {
        "pipeline": {"keep_replaced": True, "trigger": "1 second"},
        "source": {"kind": "files", "path": "events", "format": "parquet"},
        "event": {"key": "key", "time": "ts"},
        "session": {"gap": "30 minutes", "grace": "2 hours", "retention": "1 day"},
        "aggregates": {"total": "sum(amount)"},
    }
    behind = {
        "source": {"kind": "results", "of": "front", "rows": "changes"},
        "event": {"key": "of", "columns": {"of": "(unix_micros(session_start) div 60000000) % 200"}},
        "group": {},
        "aggregates": {"sessions": "count()", "total": "sum(total)"},
    }
    if trigger is not None:
        behind["pipeline"] = {"trigger": trigger}
    for name, content in {"project": {"pipeline": {"shards": 2}}, "front": front, "behind": behind}.items():
        (root / f"{name}.toml").write_text(tomli_w.dumps(content))


def write_batch(root: Path, number: int) -> None:
    rng = np.random.default_rng(number)
    times = BASE_US + number * STEP_US + rng.integers(0, STEP_US, CHANGED)
    columns = {
        "key": pa.array(np.char.add("user-", np.arange(CHANGED).astype(str))),
        "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
        "amount": pa.array(rng.integers(0, 100, CHANGED)),
    }
    hidden = root / f"{number}.parquet"
    pq.write_table(pa.table(columns), hidden)
    hidden.rename(root / "events" / f"{number:05d}.parquet")


def await_batch(config: Config, batch_id: int, driver: "subprocess.Popen[str]") -> None:
    """Wait until the pipeline behind has read a batch of the one in front."""
    while True:
        last = find_last_batch(Lake.of(config))
        if last is not None and any(Visible.read(pin).batch_id >= batch_id for pin in last.pins.values()):
            return
        if driver.poll() is not None:
            sys.exit(f"the driver has ended with exit code {driver.returncode}")
        time.sleep(0.05)


def latencies(front: Config, behind: Config) -> list[float]:
    """Return, for each batch in front, the seconds until the batch behind was committed that has read it."""
    found, committed = list[float](), {batch.batch_id: batch.committed_us for batch in batches_after(Lake.of(front))}
    reached = -1
    for batch in batches_after(Lake.of(behind)):
        (pin,) = batch.pins.values()
        read = range(reached + 1, Visible.read(pin).batch_id + 1)
        found += [(batch.committed_us - committed[batch_id]) / 1e6 for batch_id in read]
        reached = Visible.read(pin).batch_id
    return found


def measure(root: Path, batches: int, trigger: str | None) -> dict[str, Any]:
    write_configs(root, trigger)
    configs = load_project(str(root)).configs
    with (root / "log").open("w") as log, command("run", str(root), stdout=log, stderr=subprocess.STDOUT) as driver:
        for number in range(WARM + batches):
            write_batch(root, number)
            await_batch(configs["behind"], number, driver)
        before, began = tree_cpu_s(), time.monotonic()
        time.sleep(IDLE_S)
        idle = (tree_cpu_s() - before) / (time.monotonic() - began)
    each = latencies(configs["front"], configs["behind"])[WARM:]
    return {
        "p50": round(statistics.median(each), 2),
        "p99": round(float(np.quantile(each, 0.99)), 2),
        "idle_cpu": round(idle, 3),
        "each": [round(one, 3) for one in each],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--trigger", help="pipeline.trigger behind; by default it is left out")
    asked = parser.parse_args()
    load, root = os.getloadavg(), Path(tempfile.mkdtemp(prefix="sessionlake-chain-"))
    try:
        found = measure(root, asked.batches, asked.trigger)
    finally:
        shutil.rmtree(root)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": [load, os.getloadavg()]}
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"chain-latency-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    told = {"at": datetime.now(UTC).isoformat(), "machine": machine, "trigger": asked.trigger, **found}
    target.write_text(json.dumps(told, indent=1) + "\n")
    console.print(f"{json.dumps({name: value for name, value in told.items() if name != 'each'})}")
    console.print(str(target))


if __name__ == "__main__":
    main()
