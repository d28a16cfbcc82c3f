"""Reports of an attempt's tasks to the driver: numbers, names of files, and the executors on which shards ran."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from sessionlake.engine import exchange
from sessionlake.engine.operator import add_stats, stats_of
from sessionlake.engine.shard import RESTORED
from sessionlake.warehouse.batch_commit import Places
from sessionlake.warehouse.data_file import DataFile


@dataclass(frozen=True)
class Outcome:
    """The sum of an attempt's task reports."""

    stats: dict[str, int]
    touched: frozenset[int]
    stale: dict[int, str]
    """Shards without stored state, and the reasons (`shard.CAUSES`)."""
    needs: tuple[pa.Table, ...]
    files: tuple[DataFile, ...]
    places: dict[int, tuple[str, str]]
    """For each shard with rows: its executor and its store's state (`shard.NEW`, KEPT, RESTORED)."""
    cursors: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Values for the next task of each shard that returned some."""
    causes: Mapping[int, str] = field(default_factory=dict)
    """As `stale`, of all rounds of the batch."""


def read_reports(reports: DataFrame) -> Outcome:
    """Run the tasks and sum their reports."""
    stats: dict[str, int] = {}
    touched, stale, needs, files = set(), {}, [], []
    places: dict[int, tuple[str, str]] = {}
    cursors: dict[int, Mapping[str, Any]] = {}
    for kind, payload in reports.collect():
        if kind == exchange.DONE:
            report = json.loads(payload)
            if report["touched"]:
                touched.add(report["shard"])
            places[report["shard"]] = (report["executor"], report["store"])
            if report["cursor"] is not None:
                cursors[report["shard"]] = report["cursor"]
            files += [DataFile(**file) for file in report["files"]]
            add_stats(stats, stats_of(report))
        elif kind == exchange.SPLIT:
            report = json.loads(payload)
            files += [DataFile(**file) for file in report["files"]]
            add_stats(stats, stats_of(report))
        elif kind == exchange.STALE:
            report = json.loads(payload)
            stale[report["shard"]] = report["cause"]
        else:
            needs.append(pa.ipc.open_stream(payload).read_all())
    return Outcome(stats, frozenset(touched), stale, tuple(needs), tuple(files), places, cursors)


def places_of(outcome: Outcome, shards: int, before: Places | None) -> Places:
    """Return the places at which shards ran (without rows: ran before), the restored shards, and how many by cause."""
    held = {s: before.executors[at] for s, at in enumerate(before.at) if at is not None} if before else {}
    held = {shard: executor for shard, executor in held.items() if shard < shards}
    held |= {shard: executor for shard, (executor, _) in outcome.places.items()}
    executors = tuple(sorted(set(held.values())))
    at = tuple(executors.index(held[s]) if s in held else None for s in range(shards))
    restored = tuple(sorted(shard for shard, (_, store) in outcome.places.items() if store == RESTORED))
    by_cause = Counter(outcome.causes[shard] for shard in restored)
    return Places(executors, at, restored, by_cause)
