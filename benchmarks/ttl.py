"""`make bench-ttl`: what the patterns of [ttl] cost a keyed table of ten million rows, through Spark, Delta and stores; a table and a JSON file.

The table is loaded once, without [ttl], and compacted. Each pattern then begins with a copy of its tables and an empty disk: its first
batch restores the stores. Each further batch has updates of rows that stay and a tenth of new keys; a cleanup is due in each, and as many rows
have expired as a batch has updates. Of `segments`, whose rows expire by the machine's clock, none do in a run; of `lru` as many go as come.
What `benchmarks.ttl_shard` measures without Spark is in here, too.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cases import STREAM_SETTINGS
from benchmarks.ours import Commits, open_session
from benchmarks.processes import input_folder, measure
from benchmarks.run import RESULTS, about
from benchmarks.synthetic import BASE_US
from benchmarks.trees import this_tree
from sessionlake.config.load import Config, parse_config
from sessionlake.jobs.compact.job import compact
from sessionlake.operators.shared.cleanups.names import EXPIRY_LAG
from sessionlake.operators.shared.cleanups.schedule import CLEANUP_US
from sessionlake.reading import read_table
from sessionlake.stream.run import run
from sessionlake.warehouse.batch_commit import BatchCommit

Found = dict[str, Any]
TTL_US = 10_000_000_000
"""Over which the loaded rows' times are spread: a row a millisecond, of ten million."""
LOADS = 10
"""Batches that the table is loaded with."""
SHARDS = 2
NO_TTL = "no ttl"
MEGABYTE = 1_000_000


def sections(rows: int) -> dict[str, Found | None]:
    """Return the sections [ttl] by name."""
    ttl = {"ttl": f"{TTL_US} us", "every": "1 us", "clock": "stream"}
    return {
        "scan": {"pattern": "scan", **ttl},
        "scan, SQL": {
            "pattern": "scan",
            "where": f"event_time < now() - interval {TTL_US // 1_000_000} seconds and amount >= 0",
            "every": "1 us",
            "clock": "stream",
        },
        "index": {"pattern": "index", **ttl},
        "time_boxed": {"pattern": "time_boxed", **ttl},
        "time_ordered_keys": {"pattern": "time_ordered_keys", **ttl},
        "segments": {"pattern": "segments", "ttl": "1 day"},
        "lru": {"pattern": "lru", "max_entries": rows},
    }


def load(case: Found) -> Found:
    """Load the table."""
    spark, config = open_session(case), _config(case)
    commits = Commits(LOADS)
    run(spark, config, once=True, on_commit=commits)
    spark.stop()
    shutil.move(config.pipeline.warehouse, case["base"])
    return commits.found()


def fold(case: Found) -> Found:
    """Fold the table's changelog into its snapshot, with the settings for Java that jobs have."""
    spark, config = open_session(case), _config(case)
    shutil.move(case["base"], config.pipeline.warehouse)
    began = time.monotonic()
    compact(spark, config)
    found = {"compact_s": round(time.monotonic() - began, 2)}
    spark.stop()
    shutil.move(config.pipeline.warehouse, case["base"])
    return found


def expiring(case: Found) -> Found:
    """Run the batches of a copy of the table; the first one's seconds are the restore's, too."""
    config = _config(case)
    _copied(Path(case["base"]), Path(config.pipeline.warehouse))
    changelog = Path(config.pipeline.warehouse, "table_changelog")
    before = _bytes(changelog)
    spark = open_session(case)
    commits, counted = Commits(case["batches"]), list[BatchCommit]()

    def on_commit(batch: BatchCommit) -> None:
        # By the machine's clock a run ends with a batch of its own, for a cleanup that is due.
        if len(counted) < case["batches"]:
            commits(batch)
            counted.append(batch)

    run(spark, config, once=True, on_commit=on_commit)
    found = commits.found()
    spark.stop()
    steady, state = counted[1:], counted[-1].state
    # What the last cleanup's clock was past; none is overdue where there was no cleanup by it.
    expired_us = state.get("cleaned_stream_us", 0) - TTL_US
    began = time.monotonic()
    [(rows, overdue)] = (
        read_table(config).aggregate(f"count(*), count(*) FILTER (epoch_us(event_time) <= {expired_us})").fetchall()
    )
    gone = [sum(batch.counts.get(name, 0) for name in ("deleted_by_ttl", "deleted_by_lru")) for batch in steady]
    return found | {
        "first_s": found["seconds"][0],
        "gone": gone,
        "cleanup_s": [batch.counts.get(CLEANUP_US, 0) / 1e6 for batch in steady],
        "lag_s": [batch.state.get(EXPIRY_LAG, 0) / 1e6 for batch in steady],
        "scanned": sum(batch.counts.get("scanned", 0) for batch in steady),
        "decoded": sum(batch.counts.get("decoded", 0) for batch in steady),
        "live_rows": state.get("live_rows"),
        "rows": rows,
        "overdue": overdue,
        "count_s": round(time.monotonic() - began, 2),
        "store_mb": _bytes(Path(config.driver_store_dir)) / MEGABYTE,
        "changelog_mb": (_bytes(changelog) - before) / MEGABYTE,
    }


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _config(case: Found) -> Config:
    section = case.get("ttl")
    raw = {
        "pipeline": {"name": "bench", "warehouse": "warehouse", "shards": SHARDS, "trigger": "0 s"},
        "source": {"kind": "files", "path": case["events"], "format": "parquet", "max_files_per_batch": 1},
        "event": {"key": "key", "time": "ts"},
        "table": {"columns": ["status", "place", "amount", "price"], "retention": "1 hour"},
        **({} if section is None else {"ttl": section}),
    }
    return parse_config(raw, Path(case["home"]))


class Inputs:
    """The files of all runs: those that load the table, then one a batch."""

    def __init__(self, folder: Path, rows: int, updates: int) -> None:
        self.folder, self.rows, self.updates = folder, rows, updates
        folder.mkdir()

    def loads(self) -> None:
        """Write the files that load the table: a row every so many microseconds of the time to live."""
        for number in range(LOADS):
            first = self.rows * number // LOADS
            numbers = np.arange(first, self.rows * (number + 1) // LOADS)
            self._write(number, numbers, numbers * (TTL_US // self.rows))

    def batches(self, batches: int) -> None:
        """Write further files, each of distinct keys of the younger half, and a tenth of new ones."""
        random_numbers = np.random.default_rng(7)
        new, half = self.updates // 10, self.rows // 2
        step = TTL_US * self.updates // self.rows
        for number in range(batches):
            known = half + random_numbers.choice(half, self.updates - new, replace=False)
            born = self.rows + number * new + np.arange(new)
            numbers = np.concatenate([known, born])
            times = TTL_US + number * step + np.arange(len(numbers)) * step // len(numbers)
            self._write(LOADS + number, numbers, times)

    def _write(self, number: int, numbers: "np.ndarray[Any, Any]", times: "np.ndarray[Any, Any]") -> None:
        file = self.folder / f"{number:05d}.parquet"
        with duckdb.connect() as connection:
            connection.register("given", {"n": numbers, "us": times + BASE_US, "amount": numbers % 1000})
            # A UUIDv7 of the time at which its row was made: of one that is loaded its event's.
            made = f"({BASE_US} + least(n, {self.rows}) * {TTL_US // self.rows} + greatest(n - {self.rows}, 0)) // 1000"
            connection.sql(
                f"""
                SELECT printf('%s-%s-7000-8000-%012x', hex[1:8], hex[9:12], n) AS key, make_timestamptz(us) AS ts, 'confirmed' AS status,
                       'place-' || amount AS place, amount, amount / 7 AS price
                FROM (SELECT *, lower(printf('%012x', {made})) AS hex FROM given)
                """
            ).write_parquet(str(file))
        moment = time.time() // 1000 * 1000 - 10_000 + number
        os.utime(file, (moment, moment))


def _copied(source: Path, target: Path) -> None:
    """Copy a warehouse; what is never changed in place is linked."""
    shutil.copytree(
        source, target, copy_function=lambda a, b: os.link(a, b) if a.endswith(".parquet") else shutil.copy2(a, b)
    )


def summary(found: Found, updates: int) -> Found:
    """Return a run's figures: seconds from commit to commit, without the first batch, which restores."""
    seconds = found["seconds"][1:]
    gone = sum(found["gone"])
    return found | {
        "p50_s": statistics.median(seconds),
        "p99_s": float(np.quantile(seconds, 0.99)),
        "max_s": max(seconds),
        "updates_per_s": int(updates * len(seconds) / sum(seconds)),
        "read_per_gone": found["scanned"] / gone if gone else None,
        "cleanup_p50_s": statistics.median(found["cleanup_s"]),
        "cleanup_p99_s": float(np.quantile(found["cleanup_s"], 0.99)),
        "lag_p99_s": float(np.quantile(found["lag_s"], 0.99)),
    }


def shown(results: dict[str, Found], rows: int) -> Table:
    base = statistics.mean(one["p50_s"] for name, one in results.items() if name.startswith(NO_TTL))
    base_99 = statistics.mean(one["p99_s"] for name, one in results.items() if name.startswith(NO_TTL))
    table = Table(
        *("pattern", "first s", "p50 s", "p99 s", "x p50", "x p99", "CPU s", "updates/s", "gone", "read/gone"),
        *("decoded", "overdue", "store MB", "changelog MB", "memory MB"),
        title=f"{rows:,} rows",
    )
    for name, one in results.items():
        table.add_row(
            name,
            *(f"{one[figure]:.2f}" for figure in ("first_s", "p50_s", "p99_s")),
            *(f"{one['p50_s'] / base:.2f}", f"{one['p99_s'] / base_99:.2f}", f"{one['cpu_s']:.2f}"),
            *(f"{one['updates_per_s']:,}", f"{sum(one['gone']):,}"),
            "-" if one["read_per_gone"] is None else f"{one['read_per_gone']:,.1f}",
            *(f"{one[figure]:,.0f}" for figure in ("decoded", "overdue", "store_mb", "changelog_mb")),
            f"{float(one['peak_memory_mb']['total']):,.0f}",
        )
    return table


def cleanups(results: dict[str, Found], rows: int, updates: int) -> Table:
    """Return what cleanups alone took, and how late they took rows away, by the clock that they go by."""
    table = Table(
        *("pattern", "all shards: p50 s", "p99 s", "us a row read", "a shard: p99 ms", "lag p99 s", "goal: a batch, s"),
        title=f"cleanups; max_duration of time_boxed is 100 ms, whose p99 is to be 150 at most; a scan of {rows:,} rows is to take {rows * 0.6e-6:.1f} s",
    )
    for name, one in results.items():
        if name.startswith(NO_TTL):
            continue
        read = sum(one["cleanup_s"]) / one["scanned"] * 1e6 if one["scanned"] else 0
        table.add_row(
            name,
            *(f"{one[figure]:.3f}" for figure in ("cleanup_p50_s", "cleanup_p99_s")),
            *(f"{read:.2f}", f"{1000 * one['cleanup_p99_s'] / SHARDS:,.0f}"),
            *(f"{one['lag_p99_s']:.1f}", f"{TTL_US * updates / rows / 1e6:.1f}"),
        )
    return table


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    patterns = sections(0)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--updates", type=int, default=50_000, help="of a batch")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--only", action="append", choices=patterns, help="a pattern; may be given several times")
    parser.add_argument(
        "--quick", action="store_true", help="200,000 rows, 5,000 updates, 10 batches: to try the benchmark itself"
    )
    given = parser.parse_args(argv)
    rows, updates, batches = (200_000, 5_000, 10) if given.quick else (given.rows, given.updates, given.batches)
    console = Console(highlight=False, width=190)
    names = list(given.only or patterns)
    random.Random(7).shuffle(names)
    half = len(names) // 2
    order = [NO_TTL, *names[:half], f"{NO_TTL}, between", *names[half:], f"{NO_TTL}, last"]
    file = RESULTS / f"ttl-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    with input_folder() as work:
        inputs = Inputs(work / "events", rows, updates)
        inputs.loads()
        common = {
            "events": str(inputs.folder),
            "base": str(work / "base"),
            "shards": SHARDS,
            "driver_memory": "6g",
            "conf": STREAM_SETTINGS,
        }
        loaded = measure(this_tree(), common | {"kind": "load"}, work)
        loaded |= measure(this_tree(), common | {"kind": "fold", "conf": None}, work)
        console.print(
            f"loaded: {LOADS} batches, median {statistics.median(loaded['seconds']):.1f} s, compacted in {loaded['compact_s']:.0f} s"
        )
        inputs.batches(batches)
        told = about((this_tree(),), STREAM_SETTINGS, None) | {
            "rows": rows,
            "updates": updates,
            "batches": batches,
            "loaded": loaded,
        }
        results: dict[str, Found] = {}
        for name in order:
            case = common | {"kind": "expiring", "batches": batches, "ttl": sections(rows).get(name)}
            results[name] = summary(measure(this_tree(), case, work), updates)
            one = results[name]
            console.print(
                f"  {name}: first {one['first_s']:.1f} s, p50 {one['p50_s']:.2f} s, CPU {one['cpu_s']:.2f} s, {one['rows']:,} rows"
            )
            file.write_text(json.dumps(told | {"patterns": results}, indent=1) + "\n")
        console.print(shown(results, rows))
        console.print(cleanups(results, rows, updates))
    console.print(f"written to {file}")


if __name__ == "__main__":
    main()
