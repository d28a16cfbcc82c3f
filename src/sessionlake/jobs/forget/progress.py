"""How far the stream, and `publish`, have read the Delta tables that they read, from their checkpoints."""

import json

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.jobs.forget.lake import Lake
from sessionlake.jobs.publish.changes import from_version
from sessionlake.jobs.publish.final import read_reached
from sessionlake.jobs.publish.job import newest_checkpoint
from sessionlake.warehouse import schemas


def unread_from(lake: Lake, name: str) -> int | None:
    """Return the first version of a table of which the stream or `publish` may still have to read something.

    None where neither reads it.
    """
    if name == schemas.CORRECTIONS or lake.tables[name].uri in {
        side.source.path for side in lake.config.inputs.values()
    }:
        return _consumed(lake, name, lake.config.checkpoint)
    return _published(lake) if name == lake.tables.changelog.changes else None


def _published(lake: Lake) -> int | None:
    """Return it of the publisher; None where there is none."""
    checkpoint = newest_checkpoint(lake.tables, lake.config)
    if checkpoint is None:
        return None
    if lake.config.publishes_final:
        return read_reached(lake.tables, checkpoint).version + 1
    return max(
        from_version(lake.tables, checkpoint), _consumed(lake, lake.tables.changelog.changes, f"{checkpoint}/stream")
    )


def _consumed(lake: Lake, name: str, checkpoint: str) -> int:
    """Return it of the stream with a checkpoint; 0 where it has read nothing."""
    batches = [int(n) for n in lake.tables.names(f"{checkpoint}/commits") if n.isdigit()]
    text = lake.tables.read_text(f"{checkpoint}/offsets/{max(batches)}") if batches else None
    detail = lake.tables.spark.sql(f"describe detail {lake.tables[name].sql_name()}").head()
    for line in (text or "").splitlines()[2:]:
        offset = json.loads(line) if line.startswith("{") else {}
        if detail is not None and offset.get("reservoirId") == detail["id"]:
            return 0 if offset["isStartingVersion"] else int(offset["reservoirVersion"])
    return 0


def in_flight(lake: Lake) -> DataFrame:
    """Return the corrections that name a key and may not have been read yet."""
    since = lake.tables[schemas.CORRECTIONS].added_since(_consumed(lake, schemas.CORRECTIONS, lake.config.checkpoint))
    (holder,) = lake.holders[schemas.CORRECTIONS]
    rows = lake.tables[schemas.CORRECTIONS].read().where(F.col("_metadata.file_name").isin(sorted(since)))
    return lake.rows(holder, rows)
