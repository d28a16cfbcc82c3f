"""What the patterns of [ttl] cost one shard of a keyed table, beside a table without, in one run: `benchmarks.ttl` has the whole engine.

    python -m benchmarks.ttl_shard [--rows N] [--rounds N] [--sessions N] [--quick]

One shard without Spark: what a shard's task computes of a batch, and what its store then writes. Each table begins with N rows, whose ages
are spread over the time to live; then each batch updates rows and brings new keys, as many as expire, and a cleanup is due in each. CPU
seconds are the firmer ones where something else runs beside; of the batches the median and the longest are told. Then what a cleanup of so many
closed sessions costs, by their age and by SQL. Writes a JSON file to benchmarks/results/.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from sessionlake.columnar.arrays import Ints
from sessionlake.engine.operator import BatchContext, Keyed, Piece
from sessionlake.local.shards import KEY, TIME_US, LocalShards
from sessionlake.operators.keyed.mapper import UPDATES, update_schema
from sessionlake.operators.keyed.operator import TableKeeper
from sessionlake.operators.keyed.spec import KeyedSpec, next_state
from sessionlake.operators.keyed.ttl_section import ttl_section
from sessionlake.operators.sessions import shard
from sessionlake.operators.sessions.expiring import ExpiredSessions, expired_sessions
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.store.rows import RowStore
from sessionlake.stream.ingest import DEAD_LETTER, EventSpec
from sessionlake.testing import SessionizerHarness

RESULTS = Path(__file__).parent / "results"
NO_TTL = "no ttl"
COLUMNS = {"status": pa.string(), "place": pa.string(), "amount": pa.int64(), "price": pa.float64()}
STEPS = 20
"""Batches that load a table: the ages that rows have at first."""
TTL_US = 10_000_000_000
START_US = 1_700_000_000_000_000
SEED = 7
console = Console(highlight=False, width=140)


def sections(rows: int) -> dict[str, dict[str, Any] | None]:
    """Return the sections [ttl] by name; all of them take rows away as old as TTL_US, or keep as many as there are then."""
    ttl = {"ttl": f"{TTL_US} us", "every": "1 us"}
    return {
        NO_TTL: None,
        "scan": {"pattern": "scan", **ttl, "since": "insert"},
        "scan, SQL": {"pattern": "scan", "where": "amount < 0", "every": "1 us"},
        "index": {"pattern": "index", **ttl, "since": "insert"},
        "time_boxed": {"pattern": "time_boxed", **ttl, "since": "insert"},
        "time_ordered_keys": {"pattern": "time_ordered_keys", **ttl},
        "segments": {"pattern": "segments", **ttl},
        "lru": {"pattern": "lru", "max_entries": rows},
        f"{NO_TTL}, again": None,
    }


def keeper(section: dict[str, Any] | None, retention_us: int = TTL_US) -> TableKeeper:
    types = {KEY: pa.string(), TIME_US: pa.int64(), **COLUMNS}
    events = EventSpec(TableDecoder(EventColumns(KEY, TIME_US, "us", None, tuple(COLUMNS), types), None), DEAD_LETTER)
    spec = KeyedSpec(events, tuple(COLUMNS), retention_us=retention_us)
    if section is not None:
        made = ttl_section(section)
        made.check()
        spec = replace(spec, ttl=made.build(spec.types, 1))
    return TableKeeper(spec)


def uuid7(made_us: int, numbers: Ints) -> list[str]:
    ms = f"{made_us // 1000:012x}"
    return [f"{ms[:8]}-{ms[8:]}-7000-8000-{number:012x}" for number in numbers.tolist()]


@dataclass
class Batches:
    """The batches that all tables are given: the same keys and values at the same times."""

    rows: int
    updates: int
    new: int

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(SEED)
        self._keys: list[str] = []

    def loading(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield the time and the updates of each batch that fills a table."""
        for step in range(STEPS):
            now = START_US + step * (TTL_US // STEPS)
            yield now, self._table(self._born(now, self.rows // STEPS), now)

    def measured(self, rounds: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield the same of the batches that are measured: as many keys are born as get too old."""
        for number in range(rounds):
            now = START_US + TTL_US + number * (TTL_US * self.new // self.rows)
            # Of the younger half, so that what is updated is there in all tables.
            young = self._keys[-self.rows // 2 :]
            picked = self._random.choice(len(young), self.updates - self.new, replace=False)
            yield now, self._table([young[at] for at in picked] + self._born(now, self.new), now)

    def _born(self, now: int, count: int) -> list[str]:
        born = uuid7(now, np.arange(len(self._keys), len(self._keys) + count))
        self._keys += born
        return born

    def _table(self, keys: Sequence[str], now: int) -> pa.Table:
        n = len(keys)
        zeros, amount = pa.array(np.zeros(n, np.int64)), self._random.integers(0, 1000, n)
        place = pa.array(np.char.add("place-", amount.astype(str)))
        values = [pa.repeat("confirmed", n), place, pa.array(amount), pa.array(amount / 7)]
        arrays = [
            pa.array(keys),
            pa.array(np.full(n, now)),
            zeros,
            zeros,
            pa.repeat("", n),
            pa.repeat(pa.scalar(False), n),
        ]
        return pa.Table.from_arrays([*arrays, *values], schema=update_schema(keeper(None).spec))


@dataclass
class Run:
    """One table, as it goes."""

    operator: TableKeeper
    shards: LocalShards[RowStore]
    state: dict[str, Any]
    batch: int = 0

    def take(self, now: int, updates: pa.Table) -> dict[str, int]:
        context = BatchContext(self.batch, "c", self.state, now)
        ttl = self.operator.spec.ttl
        pieces: list[Piece] = [] if ttl is None else list(ttl.split(context))
        pieces.append(Keyed(UPDATES, updates["key"].combine_chunks(), updates))
        _, stats = self.shards.run(self.operator, pieces, context)
        self.state, self.batch = next_state(self.operator.spec.retention_us, self.state, stats), self.batch + 1
        return stats


def measured(section: dict[str, Any] | None, rows: int, rounds: int, root: Path) -> dict[str, Any]:
    """Return the figures of one table."""
    batches = Batches(rows, max(rows // 20, 10), max(rows // 200, 1))
    operator = keeper(section)
    shards: LocalShards[RowStore] = LocalShards(1, lambda op, shard: op.open_store(root / str(shard)))
    try:
        run = Run(operator, shards, {})
        for now, updates in batches.loading():
            run.take(now, updates)
        cpu, wall, total = [], [], dict.fromkeys(("deleted_by_ttl", "deleted_by_lru", "scanned", "decoded"), 0)
        for now, updates in batches.measured(rounds):
            began, used = time.perf_counter(), time.process_time()
            stats = run.take(now, updates)
            cpu.append(time.process_time() - used)
            wall.append(time.perf_counter() - began)
            total = {name: n + stats.get(name, 0) for name, n in total.items()}
        stored = len(shards.store(operator, 0).scan()[0])
    finally:
        shards.close()
    gone = total["deleted_by_ttl"] + total["deleted_by_lru"]
    return {
        "cpu_ms": 1000 * statistics.median(cpu),
        "cpu_max_ms": 1000 * max(cpu),
        "wall_ms": 1000 * statistics.median(wall),
        "wall_max_ms": 1000 * max(wall),
        "updates_per_cpu_second": int(batches.updates / statistics.median(cpu)),
        "gone": gone,
        "scanned_per_gone": total["scanned"] / gone if gone else None,
        "decoded": total["decoded"],
        "rows_stored": stored,
        "store_mb": sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) / 1e6,
    }


def of_sessions(sessions: int) -> dict[str, dict[str, Any]]:
    """Return what cleanups of so many closed sessions take, without what the harness does with rows: CPU seconds, and how many went."""
    minute, found = 60_000_000, {}
    windows = SessionWindows.with_gap("10 minutes").grace("5 minutes").until("60 minutes")
    old = "session_end < now() - interval 20 minutes"
    rules = {
        "by ttl": {"ttl": "20 minutes"},
        "by SQL": {"where": f"n = 1 and {old}"},
        "by SQL, true of none": {"where": f"n = 2 and {old}"},
    }
    for name, rule in rules.items():
        seconds: list[float] = []

        def timed(*args: Any, seconds: list[float] = seconds) -> ExpiredSessions:
            began = time.process_time()
            expired = expired_sessions(*args)
            seconds.append(time.process_time() - began)
            return expired

        section = {"pattern": "scan", "clock": "stream", "every": "1 us", **rule}
        with (
            SessionizerHarness(windows, {"n": "count()"}, ttl=section) as harness,
            patch.object(shard, "expired_sessions", timed),
        ):
            rows = [{"key": f"key-{number:09d}", "time_us": 0} for number in range(sessions)]
            harness.process([*rows, {"key": "last", "time_us": 21 * minute}])
            gone = harness.process([]).counts["deleted_by_ttl"]
        found[name] = {"cpu_s": seconds[-1], "gone": gone}
    return found


def shown(found: dict[str, dict[str, Any]]) -> Table:
    base = found[NO_TTL]["cpu_ms"]
    table = Table(
        "pattern",
        "CPU ms a batch",
        "longest",
        "x no ttl",
        "updates / CPU s",
        "rows gone",
        "read / gone",
        "decoded",
        "rows stored",
        "MB",
    )
    for name, row in found.items():
        read = "-" if row["scanned_per_gone"] is None else f"{row['scanned_per_gone']:,.1f}"
        numbers = (
            f"{row['cpu_ms']:,.0f}",
            f"{row['cpu_max_ms']:,.0f}",
            f"{row['cpu_ms'] / base:.2f}",
            f"{row['updates_per_cpu_second']:,}",
        )
        stored = (f"{row['gone']:,}", read, f"{row['decoded']:,}", f"{row['rows_stored']:,}", f"{row['store_mb']:,.0f}")
        table.add_row(name, *numbers, *stored)
    return table


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sessions", type=int, default=200_000)
    parser.add_argument("--quick", action="store_true", help="200,000 rows, 10 rounds")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(argv)
    rows, rounds = (200_000, 10) if given.quick else (given.rows, given.rounds)
    found: dict[str, dict[str, Any]] = {}
    for name, section in sections(rows).items():
        with tempfile.TemporaryDirectory() as root:
            found[name] = measured(section, rows, rounds, Path(root))
    console.print(shown(found))
    sessions = of_sessions(given.sessions)
    for name, row in sessions.items():
        console.print(f"{given.sessions:,} closed sessions, {name}: {row['cpu_s']:.2f} s of CPU, {row['gone']:,} went")
    stamp = datetime.now(UTC)
    told = {"at": stamp.isoformat(), "cpus": os.cpu_count(), "load": os.getloadavg(), "rows": rows, "rounds": rounds}
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"ttl-shard-{stamp:%Y%m%dT%H%M%S}.json"
    path.write_text(
        json.dumps({**told, "patterns": found, "sessions": {"of": given.sessions, **sessions}}, indent=1) + "\n"
    )
    console.print(f"written to {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
