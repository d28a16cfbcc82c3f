"""Put a backup back, into a warehouse that is empty; until it is whole nothing runs on it."""

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.errors import JobError
from sessionlake.jobs.backup.manifest import (
    CHECKPOINT,
    WAREHOUSE,
    Manifest,
    OnFile,
    SavedFile,
    check_backup,
    in_parallel,
)
from sessionlake.stopping import leaves
from sessionlake.warehouse.batches import RESTORING, changelogs_in, check_history, last_batch
from sessionlake.warehouse.tables import Tables


def restore(
    spark: SparkSession, config: Config, directory: str, on_file: OnFile = lambda _done, _all: None
) -> Manifest:
    """Copy a backup's tables and checkpoint to the paths in the config; the pipeline then goes on after the backup's batch.

    Raises JobError if the warehouse holds anything except files of an interrupted restore of this backup, if the backup
    is of another pipeline, or if one of its files is missing or damaged.
    """
    tables = Tables.of(spark, config)
    manifest = check_backup(tables, config, directory)
    marker = f"{tables.warehouse}/{RESTORING}"
    begun = tables.read_text(marker)
    if begun not in (None, manifest.commit_id):
        raise JobError(
            f"restore: {tables.warehouse!r} was being restored from another backup; go on with that one, or remove the directory"
        )
    if begun is None and tables.names(tables.warehouse):
        raise JobError(f"restore: {tables.warehouse!r} is not empty; move it away, or write another pipeline.warehouse")
    tables.make_private(tables.warehouse)
    leaves(f"{tables.warehouse} is not complete, and nothing runs on it: start it again")
    tables.write_text_once(marker, manifest.commit_id)
    failpoints.hit("restore_begun")
    roots = {WAREHOUSE: tables.warehouse, CHECKPOINT: config.checkpoint}

    def put_back(file: SavedFile) -> None:
        root, _, path = file.path.partition("/")
        if tables.copy(f"{directory}/{file.path}", f"{roots[root]}/{path}") != (file.bytes, file.sha256):
            raise JobError(
                f"restore: file {file.path!r} of {directory!r} is damaged; remove {tables.warehouse!r} and use another backup"
            )

    in_parallel(put_back, manifest.files, "restore_file_copied", on_file)
    failpoints.hit("restore_before_end")
    tables.remove(marker)
    check_history(tables, changelogs_in(tables))
    if last_batch(tables).commit_id != manifest.commit_id:
        raise JobError(
            f"restore: the changelog of {directory!r} does not end with its batch {manifest.batch_id}; use another backup"
        )
    return manifest
