"""What the shards of an attempt report to the driver: numbers, names of files, where they ran."""

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from sessionlake.engine import exchange
from sessionlake.engine.operator import add_stats
from sessionlake.engine.shard import RESTORED
from sessionlake.tables import DataFile


@dataclass(frozen=True)
class Outcome:
    """The numbers that the shards of one attempt reported."""

    stats: dict[str, int]
    touched: frozenset[int]
    stale: frozenset[int]
    needs: tuple[pa.Table, ...]
    files: tuple[DataFile, ...]
    places: dict[int, tuple[str, str]]
    """Per shard that had rows: its executor, and what became of its store (`shard.NEW`, KEPT, RESTORED)."""


def read_reports(reports: DataFrame) -> Outcome:
    """Run the shards and return what they report."""
    stats: dict[str, int] = {}
    touched, stale, needs, files = set(), set(), [], []
    places: dict[int, tuple[str, str]] = {}
    for kind, payload in reports.collect():
        if kind == exchange.DONE:
            report = json.loads(payload)
            if report["touched"]:
                touched.add(report["shard"])
            places[report["shard"]] = (report["executor"], report["store"])
            files += [DataFile(**file) for file in report["files"]]
            add_stats(stats, report["stats"])
        elif kind == exchange.STALE:
            stale.add(int(payload))
        else:
            needs.append(pa.ipc.open_stream(payload).read_all())
    return Outcome(stats, frozenset(touched), frozenset(stale), tuple(needs), tuple(files), places)


def places_of(outcome: Outcome, shards: int) -> dict[str, Any]:
    """Return where shards ran, by number in the list of executors (null: no rows), and those of them that were restored."""
    executors = sorted({executor for executor, _ in outcome.places.values()})
    at = [executors.index(outcome.places[s][0]) if s in outcome.places else None for s in range(shards)]
    restored = sorted(shard for shard, (_, store) in outcome.places.items() if store == RESTORED)
    return {"executors": executors, "at": at, "restored": restored}
