"""What the shards of an attempt report to the driver: numbers, names of files, where they ran."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from sessionlake.engine import exchange
from sessionlake.engine.operator import add_stats
from sessionlake.engine.shard import RESTORED
from sessionlake.warehouse.transactions import DataFile


@dataclass(frozen=True)
class Outcome:
    """The numbers that the shards of one attempt reported."""

    stats: dict[str, int]
    touched: frozenset[int]
    stale: dict[int, str]
    """Shards whose state must be handed in, and why (`shard.CAUSES`)."""
    needs: tuple[pa.Table, ...]
    files: tuple[DataFile, ...]
    places: dict[int, tuple[str, str]]
    """Per shard that had rows: its executor, and what became of its store (`shard.NEW`, KEPT, RESTORED)."""
    causes: Mapping[int, str] = field(default_factory=dict)
    """As `stale`, of all rounds of the batch."""


def read_reports(reports: DataFrame) -> Outcome:
    """Run the shards and return what they report."""
    stats: dict[str, int] = {}
    touched, stale, needs, files = set(), {}, [], []
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
            report = json.loads(payload)
            stale[report["shard"]] = report["cause"]
        else:
            needs.append(pa.ipc.open_stream(payload).read_all())
    return Outcome(stats, frozenset(touched), stale, tuple(needs), tuple(files), places)


def places_of(outcome: Outcome, shards: int) -> dict[str, Any]:
    """Return where shards ran, by number in the list of executors (null: no rows), which were restored, and how many by cause."""
    executors = sorted({executor for executor, _ in outcome.places.values()})
    at = [executors.index(outcome.places[s][0]) if s in outcome.places else None for s in range(shards)]
    restored = sorted(shard for shard, (_, store) in outcome.places.items() if store == RESTORED)
    by_cause = Counter(outcome.causes[shard] for shard in restored)
    return {"executors": executors, "at": at, "restored": restored, "causes": by_cause}
