"""What an outer join costs beside an inner one, on the same messages, in turns in one run.

    python -m benchmarks.outer [--rows N] [--batches N] [--rounds N]

One shard without Spark: what a shard's task computes of a batch, what its store writes, and the decoding of both sides. Orders come with a
key each; half of them get a shipment, in the next batch. So each order has no partner when it comes, which is the dearest case. Seconds
are CPU of this process. Writes a JSON file to benchmarks/results/.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from sessionlake.standalone import Pipeline

RESULTS = Path(__file__).parent / "results"
STEP_US = 60_000_000
"""Event time from a batch to the next one."""
SEED = 7
FORMS = {"inner": (None, None), "left, close": ("left", "close"), "left, batch": ("left", "batch")}
console = Console(highlight=False)


def config(type_: str | None, unmatched: str | None) -> dict[str, Any]:
    def side(name: str) -> dict[str, Any]:
        source = {"kind": "files", "path": name, "format": "parquet"}
        event = {"time": "at", "time_unit": "us"}
        return {"name": name, "size": "2 minutes", "columns": ["v"], "source": source, "event": event}

    join = {"on": ["id"], "retention": "10 minutes", "idle": "1 minute", "left": side("orders")}
    join |= {"right": side("shipments"), **({} if type_ is None else {"type": type_})}
    return {"join": join, **({} if unmatched is None else {"emit": {"unmatched": unmatched}})}


def batch_of(number: int, rows: int) -> dict[str, pa.Table]:
    """Return the messages of a batch: new orders, and shipments of every second one of the batch before."""
    random = np.random.default_rng((SEED, number))

    def table(ids: Any) -> pa.Table:
        at = number * STEP_US + random.integers(0, STEP_US, len(ids))
        keys = pa.array(np.char.add("order-", ids.astype(str)))
        return pa.table({"id": keys, "at": at, "v": random.integers(0, 1000, len(ids))})

    orders = np.arange(number * rows, (number + 1) * rows)
    return {"left": table(orders), "right": table(np.maximum(orders - rows, 0)[::2])}


def cpu_s(form: str, rows: int, batches: int) -> dict[str, Any]:
    """Return the median of a batch's CPU seconds of a form, without the first two, and the rows that went out."""
    seconds, out = [], 0
    with tempfile.TemporaryDirectory() as directory, Pipeline(directory, config(*FORMS[form])) as run:
        for number in range(batches):
            given, begun = batch_of(number, rows), time.process_time()
            for name, table in given.items():
                run.add_messages(table, name=name, clock_us=(number + 1) * STEP_US)
            out += len(run.get_result())
            run.flush()
            seconds.append(time.process_time() - begun)
    return {"cpu_s": statistics.median(seconds[2:]), "rows": out}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="orders of a batch")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {form: [] for form in FORMS}
    for _ in range(args.rounds):
        for form in FORMS:
            found[form].append(cpu_s(form, args.rows, args.batches))
            console.print(
                f"{form:<12} {found[form][-1]['cpu_s']:.2f} s of CPU a batch, {found[form][-1]['rows']:,} rows"
            )
    best = {form: min(one["cpu_s"] for one in each) for form, each in found.items()}
    ratios = {form: best["inner"] / seconds for form, seconds in best.items()}
    for form, ratio in ratios.items():
        console.print(f"{form:<12} {ratio:.2f}x of inner")
    now = datetime.now(UTC)
    content = {
        "at": now.isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()},
        "orders": args.rows,
        "batches": args.batches,
        "runs": found,
        "ratios": ratios,
    }
    file = RESULTS / f"outer-{now:%Y-%m-%dT%H%M%S}.json"
    file.write_text(json.dumps(content, indent=2) + "\n")
    console.print(f"written to {file}")


if __name__ == "__main__":
    main()
