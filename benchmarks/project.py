"""`make bench-project`: memory and idle CPU of ten pipelines in one process, beside one pipeline alone.

    python -m benchmarks.project [--pipelines N] [--seconds S]

Each pipeline has taken one file, and then looks for the next one every ten seconds. Memory is the sum of what the process, its
Java and its Python workers hold, shared pages counted once (proportional set size). CPU is that of all of them while nothing comes in.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.processes import command
from benchmarks.trees import ROOT
from sessionlake.config.project import load_project
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.lake import Lake

RESULTS = Path(__file__).parent / "results"
PROJECT = '[pipeline]\nshards = 2\ntrigger = "10 seconds"\n[connections.events]\nkind = "files"\npath = "events"\nformat = "json"\n'
PIPELINE = '[source]\nconnection = "events"\n[event]\nkey = "user"\ntime = "at"\n[session]\ngap = "10 minutes"\n[aggregates]\ntotal = "sum(v)"\n'
_SETTLED_S, _PATIENCE_S = 30, 600
Found = dict[str, Any]


def measured(count: int, seconds: int) -> Found:
    """Return memory and idle CPU of a project of `count` pipelines."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "events").mkdir()
        rows = ({"user": f"u{i % 100}", "at": f"2026-01-01T{i % 24:02}:00:00Z", "v": i} for i in range(10_000))
        (root / "events" / "1.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (root / "project.toml").write_text(PROJECT)
        for number in range(count):
            (root / f"p{number}.toml").write_text(PIPELINE)
        with command("--quiet", "run", str(root), stdout=subprocess.DEVNULL) as driver:
            began = time.monotonic()
            _wait_for_batches(root, driver)
            started_s = time.monotonic() - began
            time.sleep(_SETTLED_S)
            share = _cpu_s(driver.pid, seconds) / seconds
            memory = _memory_mb(driver.pid)
    return {
        "pipelines": count,
        "first_batches_s": round(started_s, 1),
        "idle_cpu_of_a_core": round(share, 4),
        "memory_mb": memory,
    }


def _wait_for_batches(root: Path, driver: "subprocess.Popen[str]") -> None:
    configs, deadline = load_project(root).configs.values(), time.monotonic() + _PATIENCE_S
    while not all(find_last_batch(Lake.of(config)) for config in configs):
        if driver.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("bench: the pipelines did not commit their first batches")
        time.sleep(0.5)


def _tree(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _cpu_s(pid: int, seconds: int) -> float:
    """Return the CPU seconds that the processes use in the next seconds.

    Looked at every second, process by process: the workers end after a minute without work, and nobody keeps their time.
    """
    used, known, end = 0.0, _cpu_by_process(pid), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1)
        now = _cpu_by_process(pid)
        used += sum(cpu_s - known.get(process, 0.0) for process, cpu_s in now.items())
        known = now
    return used


def _cpu_by_process(pid: int) -> dict[int, float]:
    found = {}
    for process in _tree(pid):
        with suppress(psutil.NoSuchProcess):
            found[process.pid] = sum(process.cpu_times()[:2])
    return found


def _memory_mb(pid: int) -> Found:
    """Return the memory by kind of process."""
    found = {"java": 0.0, "driver": 0.0, "workers": 0.0}
    for process in _tree(pid):
        kind = "java" if process.name() == "java" else "driver" if process.pid == pid else "workers"
        found[kind] += process.memory_full_info().pss / 1e6
    return {name: round(value) for name, value in found.items()} | {"total": round(sum(found.values()))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=120, help="how long the idle process is looked at")
    given = parser.parse_args()
    one, all_ = measured(1, given.seconds), measured(given.pipelines, given.seconds)
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)  # fmt: skip
    ratio = round(all_["memory_mb"]["total"] / one["memory_mb"]["total"], 2)
    found = {"commit": commit.stdout.strip(), "one": one, "all": all_, "memory_ratio": ratio}
    file = RESULTS / f"project-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    file.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(f"{json.dumps(found, indent=1)}\nwritten to {file}\n")


if __name__ == "__main__":
    main()
