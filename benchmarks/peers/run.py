"""`make bench-peers`: this engine, Kafka Streams, Flink, Spark's own operators, Pathway and DuckDB on the same events; a table and a JSON file.

All have two cores. A stream's figure is the median over the last three quarters of its batches, which are the same files for all; one that
knows no batches is timed as it has taken each batch's events. CPU seconds are those of all processes of a
peer, a broker's too, and the firmer figures where other load is beside. Where a peer's results are not DuckDB's, the table says so.
"""

import argparse
import json
import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.cases import STREAM_SETTINGS, summary
from benchmarks.peers.inputs import write_inputs, write_stored
from benchmarks.peers.results import added_up
from benchmarks.peers.workloads import WORKLOADS, Workload
from benchmarks.processes import MOST_MB, TooMuchMemoryError, input_folder, measure
from benchmarks.run import RESULTS, about
from benchmarks.trees import this_tree

Found = dict[str, Any]
EVENTS, FILES = 1_000_000, 4
LIMIT_S = 1200
"""How long a peer may take for a workload, if nothing else is asked for; then the run goes on with the next one."""
ASKED_FOR = {"transform_with_state"}
"""Peers that are measured only if `--peer` names them: at its rate for 100,000 events a batch, a million a batch would take this one half an hour."""
PEERS = {
    "duckdb": ("DuckDB, one batch", set(WORKLOADS)),
    "ours": ("this engine", set(WORKLOADS)),
    "spark": ("Spark", {"sessions", "tumbling", "stored", "hopping", "join"}),
    "transform_with_state": ("Spark, transformWithState in Python", {"sessions"}),
    "flink": ("Flink", set(WORKLOADS) - {"sliding_exits", "stored"}),
    "kafka_streams": ("Kafka Streams", set(WORKLOADS) - {"count", "sliding", "stored"}),
    "pathway": ("Pathway", {"sessions", "tumbling", "hopping", "join"}),
}
"""What each is called, and the workloads that it has an operator for."""
DURABLE = {
    "duckdb": "a file",
    "ours": "Delta",
    "spark": "Delta",
    "transform_with_state": "Delta",
    "flink": "Parquet",
    "kafka_streams": "a topic",
    "pathway": "a CSV file",
}
COLUMNS = (
    *("workload", "peer", "events/s", "CPU s a batch", "against ours", "CPU"),
    *("cores", "durable", "early", "equal", "load"),
)
console = Console(highlight=False, width=190)


def early(peer: str, workload: Workload) -> str:
    """Return how soon a peer sends a result."""
    if peer == "duckdb":
        return "no"
    if workload.name == "join":
        return "each pair"
    if workload.name == "count":
        return "when full"
    if workload.final or (workload.name == "sessions" and peer in ("spark", "transform_with_state", "flink")):
        return "when closed"
    return {"ours": "each batch", "spark": "each batch", "pathway": "each batch"}.get(peer, "each 2 s")


def _equality(found: list[int], expected: list[int]) -> str:
    """Return yes, or how far rows, counts and totals are off: a microsecond counts here, where Kafka and Flink know milliseconds."""
    if found == expected:
        return "yes"
    return "off by " + ", ".join(f"{a - b:,}" for a, b in zip(found, expected, strict=True))


class Peers:
    """The measurements of one run."""

    def __init__(self, work: Path, scale: int, limit_s: float = LIMIT_S) -> None:
        self.work, self.scale, self.limit_s = work, scale, limit_s
        self.results: dict[str, Found] = {}

    def measure(self, name: str, workload: Workload, batches: int | None) -> None:
        """Run a workload on a peer; what it found, or why it has nothing, is in the results."""
        case = self._case(workload, batches or workload.batches)
        began, load = time.time(), os.getloadavg()[0]
        kind = {"kind": f"{name}_peer", "conf": STREAM_SETTINGS if name == "ours" else None}
        of_workload = self.results.setdefault(workload.name, {})
        try:
            found = measure(this_tree(), case | kind, self.work, self.limit_s)
        except (subprocess.TimeoutExpired, TooMuchMemoryError) as error:
            late = isinstance(error, subprocess.TimeoutExpired)
            why = f"not ended after {self.limit_s:g} s" if late else f"more than {MOST_MB / 1000:.3g} GB of memory"
            of_workload[name] = {"no_figure": why}
            console.print(f"  {workload.name}, {name}: {why}")
            return
        stored, batches = case["stored_batches"], case["batches"]
        # One that takes all events as one batch has a single figure.
        of_measured = found | {"seconds": found["seconds"][stored:] or found["seconds"]}
        one = summary([of_measured], case["events_per_batch"])
        if "expected" not in of_workload:
            of_workload |= {"batches": batches - stored, "stored_batches": stored}
            of_workload["expected"] = self._expected(workload, case)
        wall_s = time.time() - began
        one["load"] = [round(load, 1), round(os.getloadavg()[0], 1)]
        one["equal"] = _equality(found["added_up"], of_workload["expected"])
        of_workload[name] = one
        console.print(
            f"  {workload.name}, {name}: {wall_s:.0f} s, {one['events_per_s']:,} events/s, {found['added_up']}"
        )

    def _expected(self, workload: Workload, case: Found) -> list[int]:
        results = workload.sql(workload, f"read_parquet('{case['input']}/events/*.parquet')")
        return added_up(f"({results})", workload, case | {"home": str(self.work)})

    def _case(self, workload: Workload, batches: int) -> Found:
        events, users = EVENTS // self.scale, workload.users // self.scale
        stored = workload.stored // workload.users
        folder = self.work / f"{users}-{batches}-{stored}"
        if not folder.exists():
            folder.mkdir()
            write_stored(folder, stored, users, FILES)
            write_inputs(folder, batches, events, users, FILES)
        millis = pq.read_table(folder / "events", columns=["ms"])["ms"]
        return {
            "workload": workload.name,
            "input": str(folder),
            # Chance makes some fewer than were asked for.
            "events": len(millis),
            "events_per_batch": (len(millis) - stored * users) // batches,
            "batches": stored + batches,
            "stored_batches": stored,
            "files": FILES,
            "shards": 2,
            "driver_memory": "6g",
            "latest_ms": pc.max(millis).as_py(),
        }


def show(results: dict[str, Found]) -> None:
    table = Table(*COLUMNS, title="2 cores; against ours: above 1 this engine is faster, or takes less CPU time")
    for name, of_workload in results.items():
        ours = of_workload.get("ours")
        for peer, (label, _) in PEERS.items():
            one = of_workload.get(peer)
            if one and "no_figure" in one:
                table.add_row(WORKLOADS[name].label, label, one["no_figure"], *[""] * (len(COLUMNS) - 3))
            elif one:
                ratios = ("", "")
                if ours and "runs" in ours and peer != "ours":
                    ratios = (f"{one['median_s'] / ours['median_s']:.2f}x", f"{one['cpu_s'] / ours['cpu_s']:.2f}x")
                run = one["runs"][0]
                table.add_row(
                    WORKLOADS[name].label,
                    f"{label} {run['version']}",
                    f"{one['events_per_s']:,}",
                    f"{one['cpu_s']:.2f}",
                    *ratios,
                    f"{one['cpu_s'] / one['median_s']:.1f}",
                    DURABLE[peer],
                    early(peer, WORKLOADS[name]),
                    one["equal"],
                    "-".join(map(str, one["load"])),
                )
    console.print(table)
    told = {
        peer: one["runs"][0]["settings"]
        for of_workload in results.values()
        for peer, one in of_workload.items()
        if peer in PEERS and "runs" in one
    }
    for peer, settings in told.items():
        console.print(f"{PEERS[peer][0]}: {settings}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="a workload; may be given several times")
    parser.add_argument("--peer", action="append", choices=PEERS, help="a peer; may be given several times")
    parser.add_argument("--batches", type=int, help="batches in place of each workload's own")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds that a peer may take for a workload")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes: to try the benchmark itself")
    arguments = parser.parse_args()
    file = RESULTS / f"peers-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    with input_folder() as work:
        told = about((this_tree(),), STREAM_SETTINGS, None)
        peers = Peers(work, 10 if arguments.quick else 1, arguments.limit)
        for name in arguments.only or WORKLOADS:
            for peer, (_, operators) in PEERS.items():
                if name in operators and peer in (arguments.peer or PEERS.keys() - ASKED_FOR):
                    peers.measure(peer, WORKLOADS[name], arguments.batches)
                    # After each: what a later one ends with costs nothing of this.
                    file.write_text(json.dumps(told | {"scale": peers.scale} | peers.results, indent=1) + "\n")
        show(peers.results)
    console.print(f"written to {file}")


if __name__ == "__main__":
    main()
