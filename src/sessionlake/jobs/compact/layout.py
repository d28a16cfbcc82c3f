"""Files: how many the tables have, which of them to rewrite together, and the sweep of those that belong to none."""

from datetime import timedelta
from math import ceil

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.config import Config
from sessionlake.durations import parse_duration
from sessionlake.jobs.compact.upkeep import MB, Upkeep
from sessionlake.tables import Tables

STEP_OPTIMIZE, STEP_VACUUM = "optimize", "vacuum"
SPARE_FILES = 4
"""Files that a date may have beyond what its bytes ask for, before they are rewritten."""
SMALL_FILES = 50
"""Small files that a table which the stream appends to may have before they are put together."""
DELETED_SHARE = 0.1
"""Rows of a date that deletion vectors may hide, before its files are rewritten without them."""


def partitions(tables: Tables) -> DataFrame:
    """Return the snapshot's dates: session_date (text), files, bytes, rows in the files, and of these the deleted."""
    return (
        tables.files(schemas.SESSIONS)
        .groupBy(F.col("partitionValues")["session_date"].alias("session_date"))
        .agg(
            F.count(F.lit(1)).alias("files"),
            F.sum("size").alias("bytes"),
            F.coalesce(F.sum(F.get_json_object("stats", "$.numRecords").cast("long")), F.lit(0)).alias("rows"),
            F.coalesce(F.sum("deletionVector.cardinality"), F.lit(0)).alias("deleted"),
        )
    )


def size(tables: Tables, table: str) -> tuple[int, int]:
    """Return a table's files and their bytes."""
    row = tables.files(table).agg(F.count(F.lit(1)), F.coalesce(F.sum("size"), F.lit(0))).head()
    return (0, 0) if row is None else (row[0], row[1])


def ragged(tables: Tables, config: Config) -> list[Row]:
    """Return the dates whose files are too many for their bytes, or hold too many deleted rows."""
    target = config.compact.file_mb * MB

    def is_ragged(row: Row) -> bool:
        return bool(row.files > ceil(row.bytes / target) + SPARE_FILES or row.deleted > DELETED_SHARE * row.rows)

    return sorted((row for row in partitions(tables).collect() if is_ragged(row)), key=lambda row: row.session_date)


def small_files(tables: Tables, config: Config, table: str) -> int:
    """Return how many of a table's files are less than half the size they might have."""
    return tables.files(table).where(F.col("size") < config.compact.file_mb * MB // 2).count()


def optimize_sessions(upkeep: Upkeep, config: Config) -> None:
    """Rewrite the files of ragged dates, in order of key if the config says so."""
    dates = ", ".join(f"date'{row.session_date}'" for row in ragged(upkeep.tables, config))
    if dates:
        order = " zorder by (session_key)" if config.compact.order == "zorder" else ""
        name = upkeep.tables.sql_name(schemas.SESSIONS)
        upkeep.execute(schemas.SESSIONS, STEP_OPTIMIZE, f"optimize {name} where session_date in ({dates}){order}")


def optimize_appended(upkeep: Upkeep, config: Config, table: str) -> None:
    """Put small files of a table that the stream appends to together where they are many; no reader sees a change."""
    if small_files(upkeep.tables, config, table) > SMALL_FILES:
        upkeep.execute(table, STEP_OPTIMIZE, f"optimize {upkeep.tables.sql_name(table)}")


def vacuum(upkeep: Upkeep, config: Config, table: str) -> None:
    """Delete files that no version within the retention needs: the table's own, or the config's where that is longer."""
    kept_us = max(parse_duration(config.compact.vacuum), upkeep.tables.vacuum_retention_us(table))
    hours = ceil(timedelta(microseconds=kept_us) / timedelta(hours=1))
    upkeep.execute(table, STEP_VACUUM, f"vacuum {upkeep.tables.sql_name(table)} retain {hours} hours")
