"""A stream of files with events of every fate, and its sessions as the tables and as DuckDB have them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.operators.views import read_live
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.oracle.sql import SqlOracle
from tests.support import make_config

Row = dict[str, Any]
GAP, EVER = 10, (-(10**6), 10**6)
AGGREGATES = {"total": "sum(v)", "kinds": "count_distinct(v)", "middle": "percentile(v, 0.5)"}


def event(key: str, time: int, v: float = 0.1) -> Row:
    return {"key": key, "time_us": time, "v": v}


FILES: list[list[Row | str]] = [
    [event("a", t) for t in (0, 5, 9)] + [event("gone", t) for t in (10, 15)] + ["{broken"],
    [event("a", 50), event("b", 48, 0.2), event("b", 57, 0.3), event("restated", 40), event("wrong", 60)],
    # Too old for a (late), beyond retention (dead), and the watermark goes on.
    [event("a", 12, 0.7), event("a", 100), event("b", 66, 0.4), event("c", 100)],
    [event("c", 20), event("a", 112, 0.5), event("old", 30, 0.9)],
]
LATE = [event("a", 12, 0.7)]


def config_of(root: Path, **pipeline: Any) -> Config:
    session = {"grace": "30 us", "retention": "60 us"}
    return make_config(root, session=session, aggregates=AGGREGATES, pipeline=pipeline)


def correct(spark: SparkSession, config: Config, *rows: Row) -> None:
    numbered = [{"correction_id": f"user{i}{r['key']}", "job": None, "created_at": 0, **r} for i, r in enumerate(rows)]
    table = pa.Table.from_pylist(numbered, schema=schemas.CORRECTIONS_SCHEMA)
    Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.CORRECTIONS].append_rows(table)


def sessions(spark: SparkSession, config: Config) -> dict[tuple[str, int], Row]:
    times = [F.unix_micros(f"session_{edge}").alias(f"{edge}_us") for edge in ("start", "end")]
    rows = read_live(spark, config).select("session_key", *times, "event_count", "total", "revision", "state")
    return {(r["session_key"], r["start_us"]): r.asDict() for r in rows.collect()}


def tally(found: dict[tuple[str, int], Row]) -> dict[tuple[str, int], tuple[int, int, float]]:
    return {at: (r["end_us"], r["event_count"], round(r["total"], 9)) for at, r in found.items()}


def expected(rows: list[Row]) -> dict[tuple[str, int], tuple[int, int, float]]:
    events = [{**row, "id": None} for row in rows]
    found = SqlOracle().sessionize_events(events, GAP)
    return {(r["key"], r["start_us"]): (r["end_us"], r["event_count"], round(r["total"], 9)) for r in found}
