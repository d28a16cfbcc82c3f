"""What a shard's store takes on disk once half of a table has expired, beside a store into which only the other half was loaded.

    python -m benchmarks.ttl_disk [--rows N]

Without Spark, in about two minutes. Rows are loaded in batches, of one age each; then the clock goes on until the older half has expired, and
batches of one update follow until cleanups have taken it away and its deletions are forgotten. Both stores are closed, and measured as they are,
and again after a compaction of the whole database. Writes a JSON file to benchmarks/results/.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rocksdict import Rdict

from benchmarks.ttl_shard import RESULTS, START_US, STEPS, TTL_US, Batches, Run, keeper, sections
from sessionlake.local.shards import LocalShards
from sessionlake.store.database import store_options
from sessionlake.store.rows import RowStore
from sessionlake.stream.watermark import WATERMARK

RETENTION_US = TTL_US // 1000
"""How long deletions are remembered: shorter than the time that the last batches cover."""
GOAL = 1.3
_BATCHES = 100
"""So many batches are enough for every cleanup, also for those that look at a part of the rows."""
console = Console(highlight=False, width=140)


def stored(section: dict[str, Any], rows: int, root: Path, *, younger_only: bool) -> dict[str, Any]:
    """Load a table, or its younger half, and let the older half expire; return the megabytes that the store then has."""
    batches, operator = Batches(rows, updates=1, new=0), keeper(section, RETENTION_US)
    shards: LocalShards[RowStore] = LocalShards(1, lambda op, shard: op.open_store(root / str(shard)))
    run = Run(operator, shards, {})
    for step, (now, updates) in enumerate(batches.loading()):
        if not younger_only or step >= STEPS // 2:
            run.take(now, updates)
    # The youngest of the older half is as old as the time to live; what is left lives until the last batch.
    began = START_US + (STEPS // 2 - 1) * (TTL_US // STEPS) + TTL_US
    [(_, update)] = batches.measured(1)
    for number in range(_BATCHES):
        now = began + number * (TTL_US // STEPS) // _BATCHES
        # As a map task's events would: deletions are forgotten by the watermark.
        run.state[WATERMARK] = now
        at = update.schema.get_field_index("time_us")
        run.take(now, update.set_column(at, update.schema.field(at), [[now]]))
    held = len(shards.store(operator, 0).scan()[0])
    shards.close()
    before = _megabytes(root)
    _compact(root / "0")
    return {"rows": held, "mb": before, "compacted_mb": _megabytes(root)}


def _compact(store: Path) -> None:
    families = {name: store_options() for name in Rdict.list_cf(str(store))}
    db = Rdict(str(store), options=store_options(), column_families=families)
    for name in families:
        family = db.get_column_family(name)
        family.compact_range(None, None)
        family.close()
    db.close()


def _megabytes(root: Path) -> float:
    return sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) / 1e6


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(argv)
    found: dict[str, Any] = {}
    table = Table(
        "pattern", "rows", "afresh", "MB", "afresh", "ratio", "MB compacted", "afresh", "ratio", f"goal {GOAL}"
    )
    # Of lru the older half goes while the younger is loaded.
    for name, section in sections(given.rows // 2).items():
        if section is None or name == "scan, SQL":
            continue
        half = []
        for younger_only in (False, True):
            with tempfile.TemporaryDirectory() as root:
                half.append(stored(section, given.rows, Path(root), younger_only=younger_only))
        ours, afresh = half
        ratio = ours["compacted_mb"] / afresh["compacted_mb"]
        found[name] = {"expired": ours, "afresh": afresh, "ratio": ratio}
        table.add_row(
            name,
            *(f"{one['rows']:,}" for one in half),
            *(f"{one['mb']:,.1f}" for one in half),
            f"{ours['mb'] / afresh['mb']:.2f}",
            *(f"{one['compacted_mb']:,.1f}" for one in half),
            f"{ratio:.2f}",
            "yes" if ratio <= GOAL else "NO",
        )
    console.print(table)
    stamp = datetime.now(UTC)
    told = {"at": stamp.isoformat(), "cpus": os.cpu_count(), "load": os.getloadavg(), "rows": given.rows}
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"ttl-disk-{stamp:%Y%m%dT%H%M%S}.json"
    path.write_text(json.dumps({**told, "patterns": found}, indent=1) + "\n")
    console.print(f"written to {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
