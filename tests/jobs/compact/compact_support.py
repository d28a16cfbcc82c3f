"""A changelog written by hand, batch by batch, and an independent fold of it."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sessionlake.config.load import Config
from sessionlake.jobs.compact.job import _pin
from sessionlake.jobs.compact.upkeep import Upkeep
from sessionlake.jobs.run import JobRun
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables, spark_schema
from sessionlake.warehouse.views import merged_rows
from tests.support import make_config, write_rows

DAY = 86_400_000_000
FOLDED = """
select session_key k, epoch_us(session_start) a, epoch_us(session_end) b, event_count n, revision r, total t
from changelog where op <> 'emit'
qualify row_number() over (partition by session_key, session_start order by batch_id desc) = 1 and op = 'upsert'
order by all
"""
Row = tuple[Any, ...]


def one_event(spark: SparkSession, root: Path, **sections: dict[str, Any]) -> Config:
    """Return a pipeline with one batch of one event."""
    config = make_config(root, **sections)
    write_rows(root, "0.json", [{"key": "first", "time_us": 5, "v": 1}])
    run(spark, config, once=True)
    return config


def nine_batches(spark: SparkSession, root: Path) -> None:
    """Make a pipeline: a session deleted in batch 5 and made anew in 7, one with many changes, one of a date that empties, one emitted."""
    found = one_event(spark, root)
    tables = Tables(spark, found.pipeline.warehouse, CHANGELOG)
    append_batch(tables, 1, ("upsert", "again", 10, 1), ("upsert", "often", 10, 1), ("emit", "none", 10, 9))
    append_batch(tables, 2, ("upsert", "often", 10, 2), ("upsert", "gone", 3 * DAY, 1))
    append_batch(tables, 3, ("emit", "none", 20, 9))
    append_batch(tables, 4, ("upsert", "stays", 3 * DAY + DAY, 4), ("upsert", "often", 10, 4))
    append_batch(tables, 5, ("delete", "again", 10, 0), ("upsert", "again", 30, 5))
    append_batch(tables, 6, ("delete", "gone", 3 * DAY, 0), ("delete", "never there", DAY, 0))
    append_batch(tables, 7, ("upsert", "again", 10, 7), ("delete", "again", 30, 0))
    append_batch(tables, 8, ("upsert", "often", 10, 8), ("upsert", "last", 5 * DAY, 8))


def append_batch(tables: Tables, batch_id: int, *rows: tuple[str, str, int, int]) -> None:
    """Append a batch of (op, key, start, value) to the changelog, as the stream does."""
    last = tables[schemas.CHANGELOG].last_commit()
    assert last is not None
    found = [
        {
            "op": op,
            "session_key": key,
            "session_start": start,
            "session_end": start + value,
            "event_count": value,
            "revision": batch_id,
            "total": value,
            "state": b"state",
            "session_id": 1,
            "batch_id": batch_id,
            "commit_id": f"c{batch_id}",
        }
        for op, key, start, value in rows
    ]
    schema = Sessionizer.TABLES[0].changes_schema([pa.field("total", pa.int64())], marks=True)
    frame = tables.spark.createDataFrame(pa.Table.from_pylist(found, schema=schema), spark_schema(schema))
    counts = {"upserts": sum(row[0] == "upsert" for row in rows)}
    metadata = {**last.metadata, "batch_id": batch_id, "commit_id": f"c{batch_id}", "counts": counts}
    tables[schemas.CHANGELOG].append(frame.coalesce(1), last.metadata["checkpoint_id"], batch_id, metadata)


def history(tables: Tables, until: int | None = None) -> pd.DataFrame:
    """Return all rows of the changelog, which must not have been trimmed yet."""
    rows = tables[schemas.CHANGELOG].read()
    return (rows if until is None else rows.where(f"batch_id <= {until}")).toPandas()


def folded(changelog: pd.DataFrame) -> list[Row]:
    """Return the sessions that a changelog adds up to, by DuckDB."""
    with duckdb.connect() as db:
        db.register("changelog", changelog.drop(columns="state"))
        return db.execute(FOLDED).fetchall()


def sessions(frame: DataFrame) -> list[Row]:
    """Return sessions as `folded` does."""
    names = "session_key", "unix_micros(session_start)", "unix_micros(session_end)", "event_count", "revision", "total"
    return sorted(map(tuple, frame.selectExpr(*names).collect()))


def live(tables: Tables, **versions: int) -> list[Row]:
    return sessions(merged_rows(tables, **versions))


def upkeep_of(spark: SparkSession, config: Config, run_id: str = "by hand") -> Upkeep:
    """Return a run's hold on the tables, without the record of the run."""
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    return Upkeep(spark, config, JobRun(tables, "compact", run_id, 0, _pin(tables), dry_run=False, finished=None))


def metadata_of(tables: Tables, table: str) -> dict[str, Any]:
    info = tables[table].commit_info(tables[table].latest_version()) or {}
    return json.loads(info.get("userMetadata") or "{}").get("sessionlake", {})
