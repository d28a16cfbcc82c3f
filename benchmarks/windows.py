"""`make bench-windows`: what windows cost where many become full at once, where ten times as many are stored, and where nothing comes in.

Each part runs in a process of its own on two cores. Seconds are from one commit to the next.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console

from benchmarks.cases import STREAM_SETTINGS
from benchmarks.cpu import tree_cpu_s
from benchmarks.ours import Commits, open_session
from benchmarks.processes import input_folder, measure
from benchmarks.run import RESULTS, about
from benchmarks.synthetic import BASE_US, write_events
from benchmarks.trees import this_tree
from sessionlake.config.load import Config, parse_config
from sessionlake.stream.run import run

Found = dict[str, Any]
HOUR_US = 3_600_000_000
ROUNDS = 5
IDLE_S = 60
TIME = {"kind": "tumbling", "size": "1 hour", "grace": "1 hour", "retention": "10 days"}
SECTIONS: dict[str, Found] = {
    "time": {"window": TIME},
    "count": {"window": {"kind": "tumbling", "by": "count", "size": 2, "retention_count": 2, "retention": "10 days"}},
    "state": {"window": TIME, "emit": {"early": "batch", "late": "batch"}},
    "idle": {"window": TIME, "emit": {"early": "1 minute"}},
}


def full_at_once(case: Found) -> Found:
    """Fill windows of all keys, one event each, and let the next batch make all of them full; several times."""
    folder, windows = Path(case["home"], "events"), case["windows"]
    folder.mkdir()
    by_time = case["section"] == "time"
    for number in range(ROUNDS):
        hour = BASE_US + 3 * number * HOUR_US
        _write(folder, 2 * number, windows, hour)
        # By time one event is enough to pass the others' ends; by count each key needs its second one.
        _write(folder, 2 * number + 1, 1 if by_time else windows, hour + (2 * HOUR_US if by_time else 1))
    seconds = _run(case, 2 * ROUNDS)["seconds"]
    return {"seconds": seconds, "full_s": statistics.median(seconds[3::2]), "fill_s": statistics.median(seconds[2::2])}


def more_state(case: Found) -> Found:
    """Store windows, a million a batch; then batches of events."""
    folder = Path(case["home"], "events")
    write_events(folder, case["batches"], case["events"], case["events"], 1)
    stored = case["windows"] // case["events"]
    for number in range(stored):
        _write(folder, number, case["events"], BASE_US - (stored - number) * HOUR_US)
    seconds = _run(case, stored + case["batches"])["seconds"][stored:]
    return {"seconds": seconds, "batch_s": statistics.median(seconds[2:])}


def idle(case: Found) -> Found:
    """Run a stream that has no input after its first batch, and ticks; measure its processes."""
    folder = Path(case["home"], "events")
    folder.mkdir()
    _write(folder, 0, case["windows"], BASE_US)
    found: Found = {}
    committed = threading.Event()

    def look() -> None:
        committed.wait()
        # What waits for the first minute goes out in one more batch: the stream is idle after it.
        time.sleep(90)
        before, began = tree_cpu_s(), time.monotonic()
        time.sleep(IDLE_S)
        found["core"] = (tree_cpu_s() - before) / (time.monotonic() - began)
        os.kill(os.getpid(), signal.SIGINT)

    # A shell lets what runs in the background ignore ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=look, daemon=True).start()
    spark = open_session(case)
    with contextlib.suppress(KeyboardInterrupt):
        run(spark, _config(case, trigger="1 second"), on_commit=lambda _: committed.set())
    return found


def _write(folder: Path, number: int, keys: int, time_us: int) -> None:
    """Write a file of an event a key; files are read in the order of their numbers, before all that are written without."""
    file = folder / f"{number:03d}.parquet"
    with duckdb.connect() as connection:
        rows = connection.sql(
            "SELECT 'user-' || i AS key, make_timestamptz($at) AS ts, 1::BIGINT AS amount FROM range($n) AS t(i)",
            params={"at": time_us, "n": keys},
        )
        rows.write_parquet(str(file))
    moment = time.time() // 1000 * 1000 - 10_000 + number
    os.utime(file, (moment, moment))


def _run(case: Found, batches: int) -> Found:
    spark, commits = open_session(case), Commits(batches)
    run(spark, _config(case), once=True, on_commit=commits)
    spark.stop()
    return commits.found()


def _config(case: Found, trigger: str = "0 s") -> Config:
    files = {"path": "events", "format": "parquet", "max_files_per_batch": 1}
    raw = {
        "pipeline": {"name": "bench", "warehouse": "warehouse", "shards": 2, "trigger": trigger},
        "source": {"kind": "files", **files},
        "event": {"key": "key", "time": "ts"},
        "aggregates": {"total": "sum(amount)"},
        **SECTIONS[case["section"]],
    }
    return parse_config(raw, Path(case["home"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes: to try the benchmark itself")
    scale = 10 if parser.parse_args().quick else 1
    million = 1_000_000 // scale
    common = {"shards": 2, "driver_memory": "6g", "conf": STREAM_SETTINGS}
    console = Console(highlight=False, width=120)
    with input_folder() as work:

        def measured(kind: str, section: str, **more: Any) -> Found:
            return measure(this_tree(), common | {"kind": kind, "section": section} | more, work)

        results: Found = {
            f"full_by_{name}": measured("full_at_once", name, windows=million) for name in ("time", "count")
        }
        for name, one in results.items():
            console.print(f"{name}: {million:,} windows full in one batch: {one['full_s']:.2f} s; goal 3 s")
        for times in (1, 10):
            told = measured("more_state", "state", windows=times * million, events=million, batches=6)
            results[f"stored_{times}x"] = told
        ratio = results["stored_10x"]["batch_s"] / results["stored_1x"]["batch_s"]
        console.print(f"a batch of {million:,} events beside ten times the windows: {ratio:.2f}x; goal 1.3x")
        results["idle"] = measured("idle", "idle", windows=million // 100)
        console.print(f"idle, with ticks: {results['idle']['core']:.1%} of a core; goal 2 %")
        told = about((this_tree(),), STREAM_SETTINGS, None) | {"scale": scale} | results
    file = RESULTS / f"windows-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    file.write_text(json.dumps(told, indent=1) + "\n")
    console.print(f"written to {file}")


if __name__ == "__main__":
    main()
