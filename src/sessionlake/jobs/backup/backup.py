"""Make a backup: versions are pinned, the checkpoint copied, then the tables' files, and last the manifest."""

import re
import time
from collections.abc import Iterator
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.errors import ContendedError, JobError
from sessionlake.jobs.backup.manifest import (
    CHECKPOINT,
    INCOMPLETE,
    MANIFEST,
    WAREHOUSE,
    Manifest,
    OnFile,
    SavedFile,
    in_parallel,
)
from sessionlake.jobs.backup.pins import Pins, pin
from sessionlake.warehouse.tables import Tables

_LOG_FILE = re.compile(r"(\d{20})\.(json|crc|checkpoint[.\w-]*parquet)")
_VECTOR = re.compile(r"deletion_vector_")
_LOG = "_delta_log"
_GONE = "FileNotFoundException"


def backup(spark: SparkSession, config: Config, directory: str, on_file: OnFile = lambda _done, _all: None) -> Manifest:
    """Copy tables and checkpoint as of the last committed batch into a new directory, readable by this user alone.

    The stream and jobs may go on meanwhile. A directory in which a backup was not finished is emptied and used again;
    any other that is not empty is refused with JobError.
    """
    tables = Tables.of(spark, config)
    if f"{directory}/".startswith(f"{tables.warehouse}/"):
        raise JobError(f"backup: {directory!r} is in the warehouse that it is to save; choose a directory elsewhere")
    _prepare(tables, directory)
    pins = pin(tables, config)
    failpoints.hit("backup_pinned")
    try:
        # Spark keeps the offsets of a hundred batches: they go first, since the tables may take long.
        files = _copied(tables, directory, list(_of_checkpoint(tables, config, pins.batch_id)), on_file)
        failpoints.hit("backup_checkpoint_copied")
        files += _copied(tables, directory, list(_of_tables(tables, pins)), on_file)
    except Py4JJavaError as error:
        if _GONE not in str(error):
            raise
        raise ContendedError(
            "backup: a file went while it was being copied (compaction, or a clean-up of logs); run it again"
        ) from error
    now_us = time.time_ns() // 1000
    manifest = Manifest(config.pipeline.name, pins.batch_id, pins.batch.commit_id, now_us, pins.versions, files)
    failpoints.hit("backup_before_manifest")
    tables.write_text_once(f"{directory}/{MANIFEST}", manifest.text())
    tables.remove(f"{directory}/{INCOMPLETE}")
    return manifest


def _prepare(tables: Tables, directory: str) -> None:
    """Make the directory; empty it if a backup was begun there."""
    names = tables.names(directory)
    if names and INCOMPLETE not in names:
        raise JobError(f"backup: {directory!r} is not empty; choose a new directory for each backup")
    tables.make_private(directory)
    for name in (MANIFEST, WAREHOUSE, CHECKPOINT):
        tables.remove(f"{directory}/{name}")
    tables.write_text_once(f"{directory}/{INCOMPLETE}", "")


def _of_checkpoint(tables: Tables, config: Config, batch_id: int) -> Iterator[tuple[str, str]]:
    """Yield the files, as (source, path in the backup), that a start after a batch needs.

    Sources may have noted files that they planned since. This does no harm: the next batch takes these.
    """
    root = config.checkpoint
    wanted = ["metadata"]
    for folder in ("offsets", "commits"):
        names = (name for name in tables.names(f"{root}/{folder}") if name.isdigit())
        wanted += [f"{folder}/{name}" for name in names if int(name) <= batch_id]
    for source in tables.names(f"{root}/sources"):
        logged = tables.names(f"{root}/sources/{source}")
        wanted += [f"sources/{source}/{name}" for name in logged if name.partition(".")[0].isdigit()]
    for path in wanted:
        yield f"{root}/{path}", f"{CHECKPOINT}/{path}"


def _of_tables(tables: Tables, pins: Pins) -> Iterator[tuple[str, str]]:
    """Yield the files of the tables' versions: their logs up to there, and the data that they name."""
    for name, version in sorted(pins.versions.items()):
        root = tables[name].uri
        logs = [m for m in map(_LOG_FILE.fullmatch, tables.names(f"{root}/{_LOG}")) if m and int(m[1]) <= version]
        files = (
            tables[name].files(version).select("path", F.col("deletionVector").isNotNull().alias("masked")).collect()
        )
        data = [unquote(file["path"]) for file in files]
        # Of deletion vectors all: which of them a version uses stands in its log in a code of Delta's own.
        masked = any(file["masked"] for file in files)
        vectors = [path for path in tables.lengths(root) if _VECTOR.match(path.rpartition("/")[2])] if masked else []
        for path in (*data, *vectors, *(f"{_LOG}/{match[0]}" for match in logs)):
            yield f"{root}/{path}", f"{WAREHOUSE}/{name}/{path}"


def _copied(tables: Tables, directory: str, wanted: list[tuple[str, str]], on_file: OnFile) -> list[SavedFile]:
    def save(pair: tuple[str, str]) -> SavedFile:
        source, path = pair
        return SavedFile(path, *tables.copy(source, f"{directory}/{path}"))

    return in_parallel(save, wanted, "backup_file_copied", on_file)
