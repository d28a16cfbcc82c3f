"""The tables' files: their number, the files to rewrite together, and the removal of files that belong to no table version."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from math import ceil
from typing import Any

from pyspark.sql import functions as F

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.jobs.compact.ordered import in_order, row_bytes, rows_by_date, snapshot_files
from sessionlake.jobs.compact.plan import MB, File, ragged
from sessionlake.jobs.compact.upkeep import ATTEMPTS, Upkeep
from sessionlake.warehouse.tables import Table, Tables

STEP_OPTIMIZE, STEP_VACUUM = "optimize", "vacuum"
SMALL_FILES = 50
"""Small files that a table which the stream appends to may have before they are put together."""


def size(table: Table) -> tuple[int, int]:
    """Return a table's files and their bytes."""
    row = table.files().agg(F.count(F.lit(1)), F.coalesce(F.sum("size"), F.lit(0))).head()
    return (0, 0) if row is None else (row[0], row[1])


def small_files(table: Table, config: Config) -> int:
    """Return how many of a table's files are less than half the size they might have."""
    return table.files().where(F.col("size") < config.compact.file_mb * MB // 2).count()


def ragged_files(tables: Tables, config: Config) -> list[File]:
    """Return the snapshot's files that are to be rewritten together."""
    return ragged(snapshot_files(tables), config.compact.file_mb * MB)


def optimize_snapshot(upkeep: Upkeep, config: Config) -> None:
    """Rewrite the snapshot's files if they are ragged, in order of date and key; no reader sees a change."""
    snapshot = upkeep.tables.changelog.snapshot

    def metadata(rows_written: int, files_removed: int) -> dict[str, Any]:
        details = {"rows_written": rows_written, "files_removed": files_removed}
        return upkeep.metadata(snapshot, STEP_OPTIMIZE, **details)

    rewrite = partial(rewrite_ragged, upkeep.tables, config.compact.file_mb * MB, metadata)
    upkeep.tables[snapshot].retried(ATTEMPTS, rewrite)


def rewrite_ragged(tables: Tables, file_bytes: int, metadata: Callable[[int, int], dict[str, Any]]) -> list[File]:
    """Rewrite ragged files in one commit, whose metadata is computed from the numbers of rows and replaced files; return these files."""
    of = tables.changelog
    change = tables[of.snapshot].replacement()
    files = ragged(snapshot_files(tables, change.version), file_bytes)
    if files:
        paths = [file.path for file in files]
        rows = change.read(paths)
        written = change.write(
            in_order(of, rows, rows, rows_by_date(of, files, rows), row_bytes(tables, files), file_bytes)
        )
        change.commit(written, paths, metadata(written.rows, len(files)), changes_data=False)
    return files


def optimize_appended(upkeep: Upkeep, config: Config, table: str) -> None:
    """Put small files of a table that the stream appends to together if they are many; no reader sees a change."""
    if small_files(upkeep.tables[table], config) > SMALL_FILES:
        upkeep.execute(table, STEP_OPTIMIZE, f"optimize {upkeep.tables[table].sql_name()}")


def vacuum(upkeep: Upkeep, config: Config, table: str) -> None:
    """Delete files that no version within the retention needs: the table's own, or the config's if that is longer."""
    kept_us = max(parse_duration(config.compact.vacuum), upkeep.tables[table].vacuum_retention_us())
    created_us = upkeep.tables[table].created_us()
    if created_us is not None and upkeep.run.started_us - created_us < kept_us:
        return  # none of its files is old enough, and to list them takes Delta seconds
    hours = ceil(timedelta(microseconds=kept_us) / timedelta(hours=1))
    upkeep.execute(table, STEP_VACUUM, f"vacuum {upkeep.tables[table].sql_name()} retain {hours} hours")
