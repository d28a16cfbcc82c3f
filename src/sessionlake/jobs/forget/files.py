"""Data files that hold a key though the table has it no more: found, and deleted one by one."""

from dataclasses import dataclass

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sessionlake.engine import failpoints
from sessionlake.errors import JobError
from sessionlake.jobs.forget.lake import Lake
from sessionlake.jobs.forget.progress import unread_from
from sessionlake.jobs.forget.wait_budget import Waits
from sessionlake.warehouse.filesystem import Entry, as_name
from sessionlake.warehouse.spark_columns import column as column_of

_LOG = "_delta_log"
_FILE = "_holding_file"


@dataclass(frozen=True)
class TableFiles:
    """A table's data files that hold a key, or may hold a key."""

    live: list[Entry]
    removed: list[Entry]
    """The table's log names them."""
    unknown: list[Entry]
    """No log names them: left by a crash, or being written."""
    broken: list[Entry]
    """Files that can't be read, because a crash kept them from being written to their end."""


def find_files(lake: Lake, *, alone: bool) -> dict[str, TableFiles]:
    """Look into all Parquet files below the tables' folders, whether the tables' logs name them or not.

    If a driver runs (not `alone`), an unreadable file counts as a file that is being written.
    """
    there, live, whole = {}, {}, {}
    for name in lake.holders:
        entries = lake.tables.under(lake.tables[name].uri)
        there[name] = [e for e in entries if e.path.endswith(".parquet") and f"/{_LOG}/" not in e.path]
        live[name] = {path.rpartition("/")[2] for path in lake.tables[name].read().inputFiles()}
        whole[name] = [e for e in there[name] if e.name in live[name] or lake.tables.is_parquet(e)]
    holding = _holding(lake, whole)
    found = {}
    for name, entries in there.items():
        suspects = [e for e in entries if e.name in holding]
        dead = [e for e in suspects if e.name not in live[name]]
        readable = {e.name for e in whole[name]}
        named = _named(lake, name, [e.name for e in dead])
        found[name] = TableFiles(
            [e for e in suspects if e.name in live[name]],
            [e for e in dead if e.name in named],
            [e for e in dead if e.name not in named],
            [e for e in entries if e.name not in readable] if alone else [],
        )
    return found


def _holding(lake: Lake, entries: dict[str, list[Entry]]) -> set[str]:
    """Return the names of the files that hold a key; one Spark job over all tables."""
    # A file that compaction or VACUUM takes away meanwhile is none that could be found.
    reader = lake.tables.spark.read.option("ignoreMissingFiles", "true")
    scans = {}
    for name, some in entries.items():
        if some:
            schema = lake.tables[name].read().schema
            columns = dict.fromkeys(column for holder in lake.holders[name] for column in holder.columns)
            called = lake.tables[name].physical_names()
            fields = [StructField(called[column], schema[column].dataType) for column in columns]
            rows = reader.schema(StructType(fields)).parquet(*(as_name(e.path) for e in some))
            named = (column_of(called[column]).alias(column) for column in columns)
            scans[name] = rows.select(*named, F.col("_metadata.file_name").alias(_FILE))
    found = lake.found_in(scans, "left_semi", _FILE).distinct().collect() if scans else []
    return {row[_FILE] for row in found}


def _named(lake: Lake, name: str, files: list[str]) -> set[str]:
    """Return which files the table's log still names."""
    if not files:
        return set()
    path = "struct<path string>"
    kinds = ("add", "remove", "cdc")
    log = lake.tables.spark.read.schema(", ".join(f"{kind} {path}" for kind in kinds))
    named = log.json(f"{as_name(lake.tables[name].uri)}/{_LOG}/*.json").select(
        F.coalesce(*(f"{kind}.path" for kind in kinds)).alias("path")
    )
    names = named.select(F.element_at(F.split("path", "/"), -1).alias("name"))
    return {row["name"] for row in names.where(F.col("name").isin(files)).distinct().collect()}


def erase_files(lake: Lake, waits: Waits, *, alone: bool) -> dict[str, int]:
    """Delete the files that hold a key and are no longer part of their table; return the number of files by table.

    Files that no log names are deleted only if no driver runs (`alone`), because a driver might be about to commit
    them. Files that the stream has still to read stay. Raises JobError if `publish` has still to read some. VACUUM does
    not help: with its shortest retention it would delete a driver's files, too.
    """
    found = find_files(lake, alone=alone)
    hidden = [name for name, of_table in found.items() if of_table.live]
    for name in hidden:
        # The key is in rows that deletion vectors hide.
        lake.change(name, f"reorg table {lake.tables[name].sql_name()} apply (purge)", waits)
    if hidden:
        found = find_files(lake, alone=alone)
    going = {name: _going(lake, name, of_table, alone=alone) for name, of_table in found.items()}
    for entry in (entry for entries in going.values() for entry in entries):
        failpoints.hit("forget_before_file")
        lake.tables.delete(entry.path)
    return {name: len(entries) for name, entries in going.items()}


def _going(lake: Lake, name: str, found: TableFiles, *, alone: bool) -> list[Entry]:
    """Return a table's files to delete; JobError if `publish` still has to read any of them."""
    since = unread_from(lake, name) if found.removed else None
    unread = set() if since is None else lake.tables[name].added_since(since)
    read = [e for e in found.removed if e.name not in unread]
    if name == lake.tables.changelog.changes and len(read) < len(found.removed):
        raise JobError(
            "forget: publish has not read the deletes yet; run `sessionlake publish --once`, then repeat the run"
        )
    return [*read, *((*found.unknown, *found.broken) if alone else ())]
