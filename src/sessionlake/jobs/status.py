"""What a pipeline is doing: watermark, lag, counts that reconcile, store size, last batches."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.config import Config
from sessionlake.jobs.late_status import LateStatus, read_late_status
from sessionlake.jobs.reconcile import Accepted
from sessionlake.jobs.runs import foreign_change, last_batch, was_forgotten
from sessionlake.tables import Tables
from sessionlake.views import merged_sessions, read_batches

LAST_BATCHES = 5


@dataclass(frozen=True)
class Status:
    """A pipeline's state as of its last commit."""

    batch_id: int
    watermark_us: int | None
    committed_us: int
    counts: dict[str, int]
    reconciles: bool
    """input == accepted + late + dead + dropped + emitted, over all batches and against the tables' rows; late as well.

    And sessions hold the accepted events, where nothing was corrected, and nobody else has changed their tables.
    """
    late: LateStatus
    store_bytes: int
    store_dir: str
    checkpoint: str
    changelog_version: int
    last_batches: list[dict[str, Any]]


def read_status(spark: SparkSession, config: Config) -> Status:
    """Return a pipeline's status; PipelineStateError where it has not committed a batch yet."""
    tables = Tables(spark, config.pipeline.warehouse)
    # First, so that no batch is folded into it that is not counted below.
    snapshot = tables.latest_version(schemas.SESSIONS)
    last = last_batch(tables)
    # A batch that is committed meanwhile would have counts here, and rows beyond what is counted below.
    batches = read_batches(tables).where(F.col("batch_id") <= last.metadata["batch_id"]).cache()
    sums = batches.agg(*(F.sum(name).alias(name) for name in schemas.COUNTS)).collect()[0].asDict()
    counts = {name: int(sums[name] or 0) for name in schemas.COUNTS}
    recent = [row.asDict() for row in batches.orderBy(F.desc("batch_id")).limit(LAST_BATCHES).collect()]
    batches.unpersist()
    late = read_late_status(tables, last.metadata["batch_id"], with_ids=config.event.id is not None)
    whole = _rows_add_up(counts, tables, late.events, last.metadata["batch_id"])
    sessions = _sessions_add_up(counts, tables, snapshot, last.version)
    return Status(
        batch_id=last.metadata["batch_id"],
        watermark_us=last.metadata["state"].get("watermark_us"),
        committed_us=last.metadata["committed_us"],
        counts=counts,
        reconciles=whole and sessions and late.reconciles and foreign_change(tables) is None,
        late=late,
        store_bytes=store_bytes(config),
        store_dir=config.driver_store_dir,
        checkpoint=config.checkpoint,
        changelog_version=last.version,
        last_batches=recent,
    )


def store_bytes(config: Config) -> int:
    """Return the size of the pipeline's stores on this machine; files that a running stream removes meanwhile count nothing."""
    total = 0
    for directory, _, names in os.walk(config.driver_store_dir):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(directory, name).lstat().st_size
    return total


def _rows_add_up(counts: dict[str, int], tables: Tables, late: int, batch_id: int) -> bool:
    """Check the sums, and that the tables hold as many late and dead events as were counted; no more, where some were erased."""
    out = sum(counts[name] for name in ("accepted", "late", "dead", "dropped", "emitted"))
    # What jobs bury has no batch_id and so is not counted here a second time.
    of_batches = (F.col("batch_id") <= batch_id) & (F.col("kind") == "event")
    dead = tables.read(schemas.DEAD_LETTERS).where(of_batches).count()
    rows, counted = (late, dead), (counts["late"], counts["dead"])
    kept = all(a <= b for a, b in zip(rows, counted, strict=True)) if was_forgotten(tables) else rows == counted
    return counts["input"] == out and kept


def _sessions_add_up(counts: dict[str, int], tables: Tables, snapshot: int, changelog: int) -> bool:
    """Check that sessions, as of versions, hold as many events as were accepted."""
    advance = F.count_if(F.col("kind") == "advance")
    corrections, advances = tables.read(schemas.CORRECTIONS).agg(F.count("*"), advance).collect()[0]
    known = Accepted(counts["accepted"], counts["applied"], corrections, advances, was_forgotten(tables))
    live = merged_sessions(tables, snapshot_version=snapshot, changelog_version=changelog)
    return known.corrected or known.agrees_with(live.agg(F.coalesce(F.sum("event_count"), F.lit(0))).collect()[0][0])
