"""Pipelines of groups on Spark."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, parse_config
from sessionlake.serve.queries import query_tables
from sessionlake.stream.run import run
from tests.support import write_rows

AGGREGATES = {"total": "sum(v)", "last": "last(tag)", "different": "count_distinct(v)"}
ROWS: list[dict[str, Any]] = [
    {
        "day": f"2026-01-0{n % 3 + 1}",
        "country": "ABé"[n % 7 % 3],
        "time_us": n * 7 % 90,
        "v": n % 5 or None,
        "tag": f"{n:02d}",
    }
    for n in range(90)
]
"""The events of all files together, in no order of time."""
PER_FILE = 15
COLUMNS = "day, country, event_count, total, last, different"


def group_sections(shards: int = 2, aggregates: Mapping[str, str] = MappingProxyType(AGGREGATES)) -> dict[str, Any]:
    """Return the sections of a config."""
    return {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": shards},
        "source": {"kind": "files", "path": "events", "format": "json", "max_files_per_batch": 1},
        "event": {"key": ["day", "country"], "time": "time_us", "time_unit": "us"},
        "group": {},
        "aggregates": dict(aggregates),
    }


def group_config(root: Path, **settings: Any) -> Config:
    (root / "events").mkdir(exist_ok=True)
    return parse_config(group_sections(**settings), root)


def run_files(spark: SparkSession, root: Path, config: Config, files: range) -> None:
    """Run a batch a file; one line of each is no event."""
    for number in files:
        write_rows(root, f"{number}.json", [*ROWS[number * PER_FILE : (number + 1) * PER_FILE], '{"day": "x"}'])
    run(spark, config, once=True)


def grouped(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the groups of events, by SQL."""
    given = pa.Table.from_pylist(rows)
    with duckdb.connect() as database:
        database.register("given", given)
        return database.execute("""
            select day, country, count(*), sum(v)::bigint, arg_max(tag, time_us), count(distinct v) from given
            group by day, country order by day, country""").fetchall()


def live(config: Config) -> list[tuple[Any, ...]]:
    """Return the rows that are there."""
    return query_tables(config, f"select {COLUMNS} from groups_live order by day, country", 100)[1]
