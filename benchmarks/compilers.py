"""`python -m benchmarks.compilers`: does compiling for throughput pay back in a stream that runs for long?

Two streams beside each other, on the same batches at the same times: one with LITTLE_JAVA, one with Java's and Spark's own
choice. Since they share the machine, the JVM's CPU is compared, its compiler's threads apart, over each sixth of the run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.ours import make_config, open_session
from benchmarks.synthetic import SECONDS_PER_BATCH, write_events
from sessionlake.engine.spark import LITTLE_JAVA
from sessionlake.stream.run import run
from sessionlake.warehouse.batch_commit import BatchCommit

RESULTS = Path(__file__).parent / "results"
KINDS = ("little", "own")
PATTERN = 8
"""Files that are sent over and over, each time with later event times."""


def stream(kind: str, every: float, root: Path) -> None:
    """Run one stream until it is killed, and write the JVM's CPU seconds after each batch to root/KIND.jsonl.

    It looks for files as often as they appear: one that looks all the time spends most of its CPU on looking.
    """
    folder = root / kind
    folder.mkdir()
    case = {
        "shards": 2,
        "trigger": f"{round(every * 1000)} ms",
        "events": str(root / "events"),
        "format": "parquet",
        "files": 1,
        "driver_memory": "2g",
        "conf": LITTLE_JAVA if kind == "little" else {},
    }
    spark, config = open_session(case), make_config(folder, case)
    java = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]  # noqa: SLF001

    with (root / f"{kind}.jsonl").open("w", buffering=1) as out:

        def committed(commit: BatchCommit) -> None:
            times = java.cpu_times()
            row = {"batch": commit.batch_id, "at": time.time(), "cpu": times.user + times.system}
            out.write(json.dumps(row | {"compiling": _compiling(java.pid)}) + "\n")

        run(spark, config, on_commit=committed)


def _compiling(pid: int) -> float:
    """Return the CPU seconds of the JVM's compiler threads."""
    total = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if (task / "comm").read_text().startswith(("C1", "C2")):
                user, system = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
                total += (int(user) + int(system)) / 100
        except OSError:
            continue  # the thread has ended
    return total


def send(events: Path, patterns: list[pa.Table], every: float, stop: threading.Event) -> None:
    """Let a file of events appear every so many seconds."""
    number = 0
    while not stop.wait(every):
        turn, table = number // len(patterns), patterns[number % len(patterns)]
        later = int(turn * len(patterns) * SECONDS_PER_BATCH * 1e6)
        moved = pc.add(table["ts"], pa.scalar(later, pa.duration("us")))
        half = events / f".{number}.half"
        pq.write_table(table.set_column(table.schema.get_field_index("ts"), "ts", moved), half)
        half.rename(events / f"{number:06d}.parquet")
        number += 1


def sixths(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return the median CPU ms of a batch, in all and for compiling, over each sixth of a run."""
    pairs = list(pairwise(rows))
    size = len(pairs) // 6
    parts = [pairs[i * size : (i + 1) * size] for i in range(6)]
    return [
        {
            f"{name}_ms": round(1000 * statistics.median(b[name] - a[name] for a, b in part), 1)
            for name in ("cpu", "compiling")
        }
        | {
            f"{name}_mean_ms": round(1000 * (part[-1][1][name] - part[0][0][name]) / len(part), 1)
            for name in ("cpu", "compiling")
        }
        | {"batches": len(part)}
        for part in parts
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=3.0, help="seconds from one batch to the next")
    parser.add_argument("--events", type=int, default=100_000, help="events a batch")
    parser.add_argument("--stream", nargs=2, metavar=("KIND", "ROOT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stream:
        stream(options.stream[0], options.every, Path(options.stream[1]))
        return
    with tempfile.TemporaryDirectory(prefix="bench-compilers-") as folder:
        root = Path(folder)
        (root / "events").mkdir()
        write_events(root / "patterns", PATTERN, options.events, 200_000, 1)
        patterns = [pq.read_table(file) for file in sorted((root / "patterns").iterdir())]
        command = [sys.executable, "-m", "benchmarks.compilers", "--stream"]
        streams = [subprocess.Popen([*command, kind, folder, "--every", str(options.every)]) for kind in KINDS]
        stop = threading.Event()
        sender = threading.Thread(target=send, args=(root / "events", patterns, options.every, stop))
        sender.start()
        try:
            time.sleep(options.minutes * 60)
        finally:
            stop.set()
            sender.join()
            for process in streams:
                process.terminate()
                process.wait(120)
        found = {kind: sixths([json.loads(line) for line in (root / f"{kind}.jsonl").open()]) for kind in KINDS}
    for kind, parts in found.items():
        print(kind, *parts, sep="\n  ")
    file = RESULTS / f"compilers-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    file.write_text(json.dumps({"options": vars(options), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
