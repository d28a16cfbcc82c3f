"""Data files of a table that hold a key though the table has it no more: found, and deleted one by one."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sessionlake.engine import failpoints
from sessionlake.jobs.forget_fs import Entry, Files
from sessionlake.jobs.forget_lake import Lake, quoted_path
from sessionlake.jobs.forget_progress import consumed_version, files_since, is_read_by_stream

_LOG = "_delta_log"


@dataclass(frozen=True)
class Found:
    """Data files of a table that hold a key, and unreferenced ones that can't be read, so that nobody knows."""

    live: list[Entry]
    removed: list[Entry]
    """The table's log names them."""
    unknown: list[Entry]
    """No log names them: left by a crash, or being written."""

    def __len__(self) -> int:
        return len(self.live) + len(self.removed) + len(self.unknown)


def find_files(lake: Lake, name: str, *, alone: bool) -> Found:
    """Look into all Parquet files below the table's folder, whatever the table's log says of them.

    Where a driver runs (not `alone`), a file that can't be read is one that is being written.
    """
    files = Files(lake.tables.spark)
    entries = [
        e for e in files.under(lake.tables.path(name)) if e.path.endswith(".parquet") and f"/{_LOG}/" not in e.path
    ]
    live = {path.rpartition("/")[2] for path in lake.tables.read(name).inputFiles()}
    broken = {e.name for e in entries if e.name not in live and not files.is_parquet(e)}
    holding = _holding(lake, name, [e for e in entries if e.name not in broken])
    suspects = [e for e in entries if e.name in holding or (alone and e.name in broken)]
    dead = [e for e in suspects if e.name not in live]
    named = _named(lake, name, [e.name for e in dead])
    return Found(
        [e for e in suspects if e.name in live],
        [e for e in dead if e.name in named],
        [e for e in dead if e.name not in named],
    )


def _holding(lake: Lake, name: str, entries: list[Entry]) -> set[str]:
    if not entries:
        return set()
    spark = lake.tables.spark
    schema = lake.tables.read(name).schema
    found: set[str] = set()
    for holder in lake.holders[name]:
        columns = StructType([schema[column] for column in holder.columns])
        # A file that compaction or VACUUM takes away meanwhile is none that could be found.
        reader = spark.read.schema(columns).option("ignoreMissingFiles", "true")
        rows = reader.parquet(*(e.path for e in entries)).select("*", F.col("_metadata.file_name").alias("file"))
        found |= {row["file"] for row in lake.rows(holder, rows).select("file").distinct().collect()}
    return found


def _named(lake: Lake, name: str, files: list[str]) -> set[str]:
    """Return which files the table's log still names."""
    if not files:
        return set()
    path = "struct<path string>"
    log = lake.tables.spark.read.schema(f"add {path}, remove {path}").json(f"{lake.tables.path(name)}/{_LOG}/*.json")
    names = log.select(F.element_at(F.split(F.coalesce("add.path", "remove.path"), "/"), -1).alias("name"))
    return {row["name"] for row in names.where(F.col("name").isin(files)).distinct().collect()}


def erase_files(lake: Lake, name: str, *, alone: bool) -> int:
    """Delete the files that hold a key and that the table has no more; return how many.

    Files that no log names only where no driver runs (`alone`), which might be about to commit them; files that the
    stream has still to read not at all. VACUUM is no help: at its least retention it would delete a driver's files too.
    """
    found = find_files(lake, name, alone=alone)
    if found.live:
        # The key is in rows that deletion vectors hide.
        with lake.maintenance(name):
            lake.tables.spark.sql(f"reorg table {quoted_path(lake.tables.path(name))} apply (purge)")
        found = find_files(lake, name, alone=alone)
    keep = set()
    if found.removed and is_read_by_stream(lake, name):
        keep = files_since(lake, name, consumed_version(lake, name))
    return _delete(lake, [e for e in (*found.removed, *(found.unknown if alone else [])) if e.name not in keep])


def _delete(lake: Lake, entries: Iterable[Entry]) -> int:
    files, count = Files(lake.tables.spark), 0
    for entry in entries:
        failpoints.hit("forget_before_file")
        files.delete(entry.path)
        count += 1
    return count
