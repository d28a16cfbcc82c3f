"""Pipelines of windows by count on Spark."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, parse_config
from sessionlake.stream.run import run
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.support import write_rows

Row = dict[str, Any]
NAMES = ("window_key", "window_start", "window_end", "event_count", "total", "trigger")
MESSAGES = [("abcab"[n % 5] if n % 7 else "d", n, n * n % 11 - 5) for n in range(60)]
"""Key, time and value of the messages of all files together."""


def count_config(root: Path, *, shards: int = 2, emit: Row | None = None, **window: Any) -> Config:
    (root / "events").mkdir(exist_ok=True)
    return parse_config(count_sections(shards=shards, emit=emit, **window), root)


def count_sections(*, shards: int = 2, emit: Row | None = None, source: Row | None = None, **window: Any) -> Row:
    """Return the sections of a config."""
    section = {"kind": "tumbling", "by": "count", "size": 3, "retention": "1 hour", "retention_count": 100}
    raw: dict[str, Any] = {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": shards},
        "source": source or {"kind": "files", "path": "events", "format": "json", "max_files_per_batch": 1},
        "event": {"key": "key", "time": "time_us", "time_unit": "us"},
        "window": {name: value for name, value in {**section, **window}.items() if value is not None},
        "emit": {} if emit is None else emit,
        "aggregates": {"total": "sum(v)"},
        "expire": {"max_share": 1.0},
    }
    return {name: value for name, value in raw.items() if value}


def write_messages(root: Path, files: range, of: int = 6) -> None:
    """Write some of the files into which all messages are cut; one line of each is no event."""
    step = len(MESSAGES) // of
    for number in files:
        some = MESSAGES[number * step : (number + 1) * step]
        rows: list[Any] = [{"key": key, "time_us": time, "v": value} for key, time, value in some]
        write_rows(root, f"{number}.json", [*rows[:3], '{"key": null}', *rows[3:]])


def run_files(spark: SparkSession, root: Path, config: Config, files: range) -> None:
    """Run a batch a file."""
    write_messages(root, files)
    run(spark, config, once=True)


def live(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    """Return the last row of each window."""
    return sorted(map(tuple, merged_rows(Tables.of(spark, config)).select(*NAMES).collect()))


def sent(config: Config) -> list[tuple[Any, ...]]:
    """Return all rows of the changelog, each with its batch."""
    rows = changes(config)
    return sorted(
        tuple(row[name] for name in (*NAMES, "batch_id")) for row in rows.to_pylist() if row["op"] == "upsert"
    )


def changes(config: Config, table: str = "window_changelog") -> pa.Table:
    """Return a table's rows, read without Spark."""
    return pa.table(DeltaTable(f"{config.pipeline.warehouse}/{table}").to_pyarrow_table())


def tumbling(size: int, *, whole: bool) -> list[tuple[Any, ...]]:
    """Return all windows by key of so many messages, by SQL; with `whole` only full ones."""
    given = pa.table(
        {"key": [m[0] for m in MESSAGES], "place": [m[1] for m in MESSAGES], "v": [m[2] for m in MESSAGES]}
    )
    with duckdb.connect() as database:
        database.register("given", given)
        rows = database.execute(f"""
            select key, min(place_first + 1) + n * {size}, min(place_first + 1) + n * {size} + {size - 1}, count(*), sum(v),
                   if(count(*) = {size}, 'full', 'early')
            from (select *, min(place) over (partition by key) as place_first,
                         (row_number() over (partition by key order by place) - 1) // {size} as n from given)
            group by key, n{f" having count(*) = {size}" if whole else ""}""").fetchall()
    return sorted((*row[:4], int(row[4]), row[5]) for row in rows)
