"""What the stores of `sessionlake.stores` cost, as ratios and rates of one run, beside the goals that they were made for.

    python -m benchmarks.stores [--rows N] [--memory-rows N] [--rounds N]

All goals are of CPU time of the one thread, so that what else runs on the machine counts little; of single reads the clock's are beside it. Writes a
JSON file to benchmarks/results/, and prints which goals were missed.
"""

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table
from rocksdict import Rdict

from sessionlake.store.database import store_options
from sessionlake.stores import Serdes, Stores, Windowed

RESULTS = Path(__file__).parent / "results"
SESSIONS_OF_A_KEY = (1, 100, 10_000)
BATCH = 10_000
MB = 1 << 20
console = Console(highlight=False)


def seconds(action: Callable[[], Any]) -> float:
    """Return the CPU seconds of this thread that an action takes."""
    started = time.thread_time()
    action()
    return time.thread_time() - started


def used_up(rows: Iterable[Any]) -> None:
    deque(rows, maxlen=0)


def last_of_many(root: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Read the newest 10 of a window store's rows, forward to the end and backward."""
    store = Stores.persistent_window_store(
        "windows", root, Serdes.bytes(), Serdes.bytes(), retention=10 * rows, window_size=1, segment_interval=rows // 4
    )
    with store:
        for start in range(rows):
            store.put(b"key-%03d" % (start % 1000), b"value", start)
        store.flush()
        forward = [seconds(lambda: deque(store.fetch_all(0, rows), maxlen=10)) for _ in range(rounds)]
        backward = [seconds(lambda: list(islice(store.backward_fetch_all(0, rows), 10))) for _ in range(rounds * 100)]
    ratio = statistics.median(forward) / statistics.median(backward)
    return {
        "forward_s": statistics.median(forward),
        "backward_s": statistics.median(backward),
        "ratio": ratio,
        "goal": 1000,
        "met": ratio >= 1000,
    }


def through_the_iterator(root: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Read all rows of a key-value store, and of the same database by rocksdict alone."""
    with Stores.persistent_key_value_store("items", root, Serdes.bytes(), Serdes.bytes()) as store:
        for first in range(0, rows, BATCH):
            store.put_all((b"%012d" % n, b"v%09d" % n) for n in range(first, first + BATCH))
    families = {name: store_options() for name in ("default", "rows")}
    ours, bare, backward = [], [], []
    for _ in range(rounds):
        db = Rdict(str(root / "items"), options=store_options(), column_families=families)
        family = db.get_column_family("rows")
        bare.append(seconds(lambda: used_up(family.items())))  # noqa: B023 - called at once
        family.close()
        db.close()
        with Stores.persistent_key_value_store("items", root, Serdes.bytes(), Serdes.bytes()) as store:
            ours.append(seconds(lambda: used_up(store.all())))
            backward.append(seconds(lambda: used_up(store.reverse_all())))
    ratio = statistics.median(ours) / statistics.median(bare)
    return {
        "us_a_row": statistics.median(ours) / rows * 1e6,
        "us_a_row_backward": statistics.median(backward) / rows * 1e6,
        "us_a_row_bare": statistics.median(bare) / rows * 1e6,
        "ratio": ratio,
        "goal": 3,
        "met": ratio <= 3,
    }


def single_calls(root: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Put and get one row a call, at random keys."""
    order = np.random.default_rng(1).permutation(rows)
    keys = [b"%012d" % n for n in order]
    puts, gets = [], []
    for number in range(rounds):
        with Stores.persistent_key_value_store(f"calls-{number}", root, Serdes.bytes(), Serdes.bytes()) as store:

            def put() -> None:
                for key in keys:
                    store.put(key, key)

            def get() -> None:
                for key in keys:
                    store.get(key)

            puts.append(rows / seconds(put))
            gets.append(rows / seconds(get))
    rates = {"puts_a_second": statistics.median(puts), "gets_a_second": statistics.median(gets)}
    met = rates["puts_a_second"] >= 150_000 and rates["gets_a_second"] >= 300_000
    return {**rates, "goal": "150,000 and 300,000", "met": met}


def finds(root: Path) -> dict[str, Any]:
    """Find a key's sessions, of 1, 100 and 10,000."""
    found: dict[str, Any] = {}
    for count in SESSIONS_OF_A_KEY:
        keys, reads = max(1, 1000 // count), 2000 if count < 10_000 else 200
        cpu, clock = np.array(list(timed_finds(root, count, keys, reads))).T * 1000
        found[str(count)] = {
            "p50_ms": float(np.median(cpu)),
            "p99_ms": float(np.percentile(cpu, 99)),
            "clock_p50_ms": float(np.median(clock)),
            "clock_p99_ms": float(np.percentile(clock, 99)),
        }
    return found


def timed_finds(root: Path, count: int, keys: int, reads: int) -> Iterator[tuple[float, float]]:
    """Yield the seconds of CPU and of the clock of each read of all of a key's sessions."""
    with Stores.persistent_session_store(
        f"rows-{count}", root, Serdes.string(), Serdes.bytes(), retention=1 << 40
    ) as store:
        for key in range(keys):
            for n in range(count):
                store.put(Windowed(str(key), n, n), b"state")
        for read in range(reads):
            clock, cpu = time.perf_counter(), time.thread_time()
            used_up(store.find_sessions(str(read % keys), 0, count))
            yield time.thread_time() - cpu, time.perf_counter() - clock


def memory(root: Path, rows: int) -> dict[str, Any]:
    """Iterate over many rows, and say how much memory the process had of its own a tenth of the way and at the end.

    Pages of files that RocksDB maps are left out: the system may have them back at any time.
    """
    with Stores.persistent_key_value_store("memory", root, Serdes.bytes(), Serdes.bytes()) as store:
        for first in range(0, rows, BATCH):
            store.put_all((b"%012d" % n, b"v%09d" % n) for n in range(first, first + BATCH))
        store.flush()
        process = psutil.Process()
        seen: list[float] = []
        with store.all() as found:
            for number, _ in enumerate(found):
                if number % (rows // 10) == 0:
                    info = process.memory_info()
                    seen.append((info.rss - info.shared) / MB)
    growth = max(seen[1:]) - seen[1]
    return {"mb_by_tenths": seen, "growth_mb": growth, "goal": 5, "met": growth <= 5}


def measured(rows: int, memory_rows: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        return {
            "last 10 of a range, times faster": last_of_many(root, rows, rounds),
            "items, times bare rocksdict": through_the_iterator(root, rows, rounds),
            "single calls": single_calls(root, rows // 5, rounds),
            **{f"find_sessions, {name}": row for name, row in finds(root).items()},
            "memory": memory(root, memory_rows),
        }


def shown(found: dict[str, Any]) -> Table:
    table = Table("measured", "figures", "goal", "met")
    for name, row in found.items():
        figures = {key: value for key, value in row.items() if key not in {"goal", "met"}}
        text = ", ".join(
            f"{key} {value:,.4g}" if isinstance(value, float) else f"{key} {[round(v) for v in value]}"
            for key, value in figures.items()
        )
        table.add_row(name, text, str(row.get("goal", "")), {True: "yes", False: "NO"}.get(row.get("met"), ""))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--memory-rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    found = measured(given.rows, given.memory_rows, given.rounds)
    now = datetime.now(UTC)
    result = {
        "benchmark": "stores",
        "at": now.isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "load_before": load,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **vars(given),
        "found": found,
    }
    file = RESULTS / f"stores-{now:%Y-%m-%dT%H%M%S}.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    console.print(shown(found))
    console.print(f"load before {load:.1f}; written to {file}")


if __name__ == "__main__":
    main()
