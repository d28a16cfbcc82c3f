"""What a message costs without Spark, by kind of window: CPU of `add_message` and of `add_messages`, in one run.

    python -m benchmarks.standalone [--messages N] [--keys N] [--table N] [--only KIND ...] [--profile] [--quick]

Messages of N keys, a second apart and a little out of order, are added one by one with their positions; the same are then added
as tables of --table rows, one by one with `batch` of as many, and one by one with something downstream, which flushes after each;
each way has a directory of its own.
CPU milliseconds a message, of the process; a tenth of the messages warms up. --profile prints where the time of `add_message`
goes instead. Writes a JSON file to benchmarks/results/.
"""

import argparse
import cProfile
import json
import os
import pstats
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from sessionlake import CountWindows, HoppingWindows, SessionWindows, SlidingWindows, TumblingWindows
from sessionlake.standalone import Emit, JoinWindow, WindowedAggregator

RESULTS = Path(__file__).parent / "results"
SECOND = 1_000_000
AGGREGATES = {"total": "sum(v)", "last": "last(v)"}
SEED = 7
console = Console(highlight=False, width=140)

_WINDOWS: dict[str, tuple[Any, Emit | None]] = {
    "tumbling": (TumblingWindows.of("1 minute").grace("1 minute").until("10 minutes"), None),
    "hopping": (HoppingWindows.of("1 minute", "10 seconds").grace("1 minute").until("10 minutes"), None),
    "sliding": (SlidingWindows.of("1 minute").grace("1 minute").until("10 minutes"), None),
    "count": (CountWindows.of(10).until("10 minutes"), None),
    "sessions": (SessionWindows.with_gap("10 seconds").grace("1 minute").until("10 minutes"), None),
}
JOIN = "join"
KINDS = (*_WINDOWS, JOIN)
Opened = Any


def opened(kind: str, directory: Path, **options: Any) -> Opened:
    """Open what is measured; of the join, messages go to both sides in turn."""
    if kind == JOIN:
        side = {"size": "10 seconds", "columns": ["v"]}
        sides = {name: {"name": name[0], **side} for name in ("left", "right")}
        return JoinWindow(directory, on=["key"], **sides, grace="1 minute", retention_time="10 minutes", **options)
    windows, emit = _WINDOWS[kind]
    return WindowedAggregator(directory, windows, AGGREGATES, key="key", emit=emit, **options)


def messages(count: int, keys: int) -> list[dict[str, Any]]:
    """Return messages, times a second apart and up to five seconds out of order."""
    random = np.random.default_rng(SEED)
    times = (np.arange(count) * SECOND + random.integers(-5 * SECOND, 1, count)).tolist()
    values, of = random.integers(0, 1000, count).tolist(), random.integers(0, keys, count).tolist()
    return [{"key": f"k{k}", "time_us": 3600 * SECOND + t, "v": v} for k, t, v in zip(of, times, values, strict=True)]


def one_by_one(run: Opened, kind: str, given: list[dict[str, Any]], first: int) -> None:
    for at, message in enumerate(given, first):
        of = (("left", "right")[at % 2],) if kind == JOIN else ()
        run.add_message(*of, message, position=at + 1, clock_us=message["time_us"])


def _all(run: Opened, kind: str, given: list[dict[str, Any]], first: int) -> None:
    one_by_one(run, kind, given, first)
    run.get_result()  # with `batch`, the rest too


def as_tables(run: Opened, kind: str, given: list[dict[str, Any]], rows: int) -> None:
    for at in range(0, len(given), rows):
        some = given[at : at + rows]
        sides = [(("left",), some[::2]), (("right",), some[1::2])] if kind == JOIN else [((), some)]
        for of, part in sides:
            if part:
                table = pa.Table.from_pylist(part)
                run.add_messages(*of, table, positions=range(at + 1, at + 1 + len(part)), clock_us=part[-1]["time_us"])


def cpu_ms(work: Callable[[], None], count: int) -> float:
    """Return CPU milliseconds of this process, a message."""
    begun = time.process_time()
    work()
    return 1000 * (time.process_time() - begun) / count


def measured(kind: str, given: list[dict[str, Any]], rows: int, root: Path) -> dict[str, float]:
    """Return CPU milliseconds a message, by way."""
    warm = len(given) // 10
    ways: dict[str, dict[str, Any]] = {
        "add_message": {},
        "downstream": {"downstream": lambda _: True},
        f"batch={rows}": {"batch": rows},
    }
    found = {}
    for way, options in ways.items():
        with opened(kind, root / f"{kind}-{way}", **options) as run:
            one_by_one(run, kind, given[:warm], 0)
            run.get_result()
            found[way] = cpu_ms(lambda run=run: _all(run, kind, given[warm:], warm), len(given) - warm)
    with opened(kind, root / f"{kind}-table") as run:
        found["add_messages"] = cpu_ms(lambda: as_tables(run, kind, given, rows), len(given))
    return found


def profiled(kind: str, given: list[dict[str, Any]], root: Path) -> None:
    """Print where the time of `add_message` goes."""
    warm, profile = len(given) // 10, cProfile.Profile(time.process_time)
    with opened(kind, root / kind) as run:
        one_by_one(run, kind, given[:warm], 0)
        profile.enable()
        one_by_one(run, kind, given[warm:], warm)
        profile.disable()
    stats = pstats.Stats(profile)
    stats.sort_stats("tottime").print_stats(45)
    stats.sort_stats("cumulative").print_stats(70)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--table", type=int, default=100, help="rows of a table")
    parser.add_argument("--only", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--quick", action="store_true", help="few messages: whether it runs at all")
    args = parser.parse_args(argv)
    given = messages(120 if args.quick else args.messages, args.keys)
    with tempfile.TemporaryDirectory() as folder:
        if args.profile:
            for kind in args.only:
                profiled(kind, given, Path(folder))
            return
        found = {kind: measured(kind, given, args.table, Path(folder)) for kind in args.only}
    table = Table("CPU ms a message", *next(iter(found.values())))
    for kind, by_way in found.items():
        table.add_row(kind, *(f"{ms:.3f}" for ms in by_way.values()))
    console.print(table)
    if not args.quick:
        settings = {"messages": args.messages, "keys": args.keys, "table": args.table, "cpus": os.cpu_count()}
        name = RESULTS / f"standalone-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
        name.write_text(json.dumps({"settings": settings, "cpu_ms": found}, indent=1) + "\n")
        console.print(f"[bold]wrote[/bold] {name.name}")


if __name__ == "__main__":
    main()
