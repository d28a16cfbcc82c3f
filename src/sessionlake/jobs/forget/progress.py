"""How far the stream, and `publish`, have read the Delta tables that they read, from their checkpoints."""

import json

from pyspark.sql import functions as F

from sessionlake.jobs.forget.lake import SINK_TABLE, Lake
from sessionlake.jobs.publish.final import read_reached
from sessionlake.jobs.publish.function import position_of as position_of_function
from sessionlake.warehouse import schemas
from sessionlake.warehouse.database_position import position_in_database
from sessionlake.warehouse.sink_position import newest_position
from sessionlake.warehouse.topic_position import from_version, newest_checkpoint, noted_version

_FILE = "_holding_file"


def unread_from(lake: Lake, name: str) -> int | None:
    """Return the first version of a table that the stream or `publish` may still have to read.

    None if neither reads the table.
    """
    if name == schemas.CORRECTIONS or lake.tables[name].uri in {
        side.source.path for side in lake.config.inputs.values()
    }:
        return _consumed(lake, name, lake.config.checkpoint)
    if name != lake.tables.changelog.changes:
        return None
    sinks = (_published(lake), _in_table(lake), _in_database(lake), _in_function(lake))
    return min((version for version in sinks if version is not None), default=None)


def _in_table(lake: Lake) -> int | None:
    """Return it of the table of [sink.delta]; None if there is none."""
    position = newest_position(lake.tables[SINK_TABLE]) if SINK_TABLE in lake.holders else None
    return None if position is None else position.seen.version + 1


def _in_database(lake: Lake) -> int | None:
    """Return it of the table of [sink.postgres]; None if there is none."""
    position = position_in_database(lake.config)
    return None if position is None else position.seen.version + 1


def _in_function(lake: Lake) -> int | None:
    """Return it of the function of [sink.python]; None if there is none."""
    position = None if lake.config.sink.python is None else position_of_function(lake.tables, lake.config)
    return None if position is None else position.seen.version + 1


def _published(lake: Lake) -> int | None:
    """Return it of the topic; None if there is none."""
    if lake.config.sink.kafka is not None and lake.config.sink.kafka.transactions:
        version = noted_version(lake.tables, lake.config)
        return None if version < 0 else version + 1
    checkpoint = newest_checkpoint(lake.tables, lake.config)
    if checkpoint is None:
        return None
    if lake.config.publishes_final:
        return read_reached(lake.tables, checkpoint).version + 1
    return max(
        from_version(lake.tables, checkpoint), _consumed(lake, lake.tables.changelog.changes, f"{checkpoint}/stream")
    )


def _consumed(lake: Lake, name: str, checkpoint: str) -> int:
    """Return it of the stream with a checkpoint; 0 if it has read nothing."""
    batches = [int(n) for n in lake.tables.names(f"{checkpoint}/commits") if n.isdigit()]
    text = lake.tables.read_text(f"{checkpoint}/offsets/{max(batches)}") if batches else None
    table = lake.tables[name].id()
    for line in (text or "").splitlines()[2:]:
        offset = json.loads(line) if line.startswith("{") else {}
        if offset.get("reservoirId") == table:
            return 0 if offset["isStartingVersion"] else int(offset["reservoirVersion"])
    return 0


def in_flight(lake: Lake) -> dict[int, int]:
    """Count the corrections that name a key and may not have been read yet, by the version of the table that brought them."""
    versions = lake.tables[schemas.CORRECTIONS].files_added(read_until(lake))
    rows = lake.tables[schemas.CORRECTIONS].read().withColumn(_FILE, F.col("_metadata.file_name"))
    (holder,) = lake.holders[schemas.CORRECTIONS]
    unread = lake.rows(holder, rows.where(F.col(_FILE).isin(sorted(set().union(*versions.values())))))
    found = (
        {row[_FILE]: row["count"] for row in unread.groupBy(_FILE).count().collect()} if any(versions.values()) else {}
    )
    counts = {version: sum(found.get(file, 0) for file in files) for version, files in versions.items()}
    return {version: count for version, count in counts.items() if count}


def read_until(lake: Lake) -> int:
    """Return the first version of the corrections that the stream may still have to read; needs no Spark job."""
    return _consumed(lake, schemas.CORRECTIONS, lake.config.checkpoint)
