"""`make bench`: this engine beside an older commit of it (`--base`), Spark's session_window and DuckDB; a table and a JSON file.

Every comparison is made within one run, on two cores; absolute figures belong to the machine, ratios travel. Walls are
medians over the last three quarters of a run's batches. CPU seconds are those of driver, JVM and workers together, and
the firmer figures where other load is beside.
"""

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cases import PARTS, STREAM_SETTINGS, Bench
from benchmarks.processes import input_folder
from benchmarks.trees import ROOT, Tree, older, this_tree

RESULTS = Path(__file__).parent / "results"
Found = dict[str, Any]
console = Console(highlight=False)


def rows(results: dict[str, Found]) -> list[tuple[str, ...]]:
    """Return the table's rows: what, the older commit or peer, this engine, the ratio (above 1 this engine is faster), that of CPU."""
    found: list[tuple[str, ...]] = []

    def rate(label: str, peer: Found | None, ours: Found, ratio: object, cpu_ratio: object = "") -> None:
        theirs = f"{peer['events_per_s']:,}" if peer else ""
        found.append((label, theirs, f"{ours['events_per_s']:,}", _times(ratio), _times(cpu_ratio)))

    for part, label in (("million", "1M events a batch"), ("small", "200k, one file a batch"), ("json", "JSON, 1M")):
        if one := results.get(part):
            rate(f"{label}, events/s", one.get("base"), one["ours"], one.get("ratio"), one.get("cpu_ratio"))
            memory = [_memory(one[name]) if name in one else "" for name in ("base", "ours")]
            found.append(("  peak memory, JVM + Python, MB", *memory, "", ""))
    if "json" in results:
        against = results["json"]["against_parquet"]
        found.append(("  against Parquet", _times(against.get("base")), _times(against["ours"]), "", ""))
    for name, one in results.get("file_to_commit", {}).items():
        times = [f"{one[tree]['median_s']:.3f}" if tree in one else "" for tree in ("base", "ours")]
        label = f"{name.replace('_', ' ')} events, file to commit, s"
        found.append((label, *times, _times(one.get("ratio")), _times(one.get("cpu_ratio"))))
    for size, peers in results.get("session_window", {}).items():
        for name, peer in peers.items():
            label = f"session_window stream, {size}, {name.replace('_', ' ')}"
            rate(label, peer, results[size]["ours"], peer["ratio"], peer["cpu_ratio"])
    for label, one in _once(results):
        ours = one.get("ours") or results["million"]["ours"]
        rate(label, one.get("constant", one), ours, one["ratio"], one.get("cpu_ratio", ""))
    if stored := results.get("stored"):
        times = [f"{stored[name]['median_s']:.3f}" for name in ("one_million", "ten_million")]
        found.append(("500k a batch, 1M and 10M stored, s", *times, _times(stored["ratio"]), ""))
    return found


def _once(results: dict[str, Found]) -> Iterator[tuple[str, Found]]:
    """Yield what is compared with one thing each: its label, and what was found."""
    for part, label in (
        ("batch", "all files as one batch"),
        ("limits", "against a constant gap"),
        ("emit", "against every change"),
        ("unique", "against as they come"),
        ("layouts", "against from the beginning"),
        ("archive", "against the columns that are read"),
        ("shape", "against the events as they are"),
        ("lookup", "against a column of the event"),
        ("engine", "against sorted files"),
        ("nested", "against flat lines"),
    ):
        for name, one in results.get(part, {}).items():
            yield f"{name}, {label}", one


def _times(ratio: object) -> str:
    return f"{ratio:.2f}x" if isinstance(ratio, float) else ""


def _memory(found: Found) -> str:
    return f"{found['peak_memory_mb']['total']:,.0f}"


def show(results: dict[str, Found]) -> None:
    title = "sessionlake, local[2]; the ratio is this engine's speed against the other's"
    table = Table("measurement", "base or peer", "this engine", "ratio", "CPU ratio", title=title)
    for row in rows(results):
        table.add_row(*row)
    console.print(table)


def about(trees: tuple[Tree, ...], conf: dict[str, str], base: str | None) -> Found:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("describe", "--always", "--dirty", "--exclude=*"),
        "base": base and _git("rev-parse", "--short", base),
        "base_packages": trees[0].packages if base else None,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "stream_settings": conf,
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", metavar="COMMIT", help="an older commit of this project, measured beside this one")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; may be given several times")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes: to try the benchmark itself")
    arguments = parser.parse_args()
    file = RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    with input_folder() as work, older(arguments.base, work) if arguments.base else nullcontext() as base:
        trees = (base, this_tree()) if base else (this_tree(),)
        told = about(trees, STREAM_SETTINGS, arguments.base)
        bench = Bench(work, trees, scale=10 if arguments.quick else 1)
        for part in arguments.only or PARTS:
            console.print(f"measuring {part} ...")
            bench.part(part)
            # After each part: what a later one ends with costs nothing of this.
            file.write_text(json.dumps(told | {"scale": bench.scale} | bench.results, indent=1) + "\n")
            show(bench.results)
    console.print(f"written to {file}")


if __name__ == "__main__":
    main()
