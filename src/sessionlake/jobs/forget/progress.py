"""How far the stream has read the Delta tables that it reads, from its checkpoint."""

import json

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.jobs.forget.lake import Lake, quoted_path


def consumed_version(lake: Lake, name: str) -> int:
    """Return the first version of a table of which the stream may still have to read something; 0 where it has read nothing."""
    checkpoint = lake.config.checkpoint
    batches = [int(n) for n in lake.tables.names(f"{checkpoint}/commits") if n.isdigit()]
    text = lake.tables.read_text(f"{checkpoint}/offsets/{max(batches)}") if batches else None
    detail = lake.tables.spark.sql(f"describe detail {quoted_path(lake.tables.path(name))}").head()
    for line in (text or "").splitlines()[2:]:
        offset = json.loads(line) if line.startswith("{") else {}
        if detail is not None and offset.get("reservoirId") == detail["id"]:
            return 0 if offset["isStartingVersion"] else int(offset["reservoirVersion"])
    return 0


def is_read_by_stream(lake: Lake, name: str) -> bool:
    """Say whether the table is an input of the stream."""
    return name == schemas.CORRECTIONS or lake.tables.path(name) == lake.config.source.path


def files_since(lake: Lake, name: str, version: int) -> set[str]:
    """Return the names of the files that commits from a version on have added."""
    found = set()
    log = f"{lake.tables.path(name)}/_delta_log"
    for v in range(version, lake.tables.latest_version(name) + 1):
        for line in (lake.tables.read_text(f"{log}/{v:020d}.json") or "").split("\n"):
            if line.startswith('{"add"'):
                found.add(json.loads(line)["add"]["path"].rpartition("/")[2])
    return found


def in_flight(lake: Lake) -> DataFrame:
    """Return the corrections that name a key and may not have been read yet."""
    since = files_since(lake, schemas.CORRECTIONS, consumed_version(lake, schemas.CORRECTIONS))
    (holder,) = lake.holders[schemas.CORRECTIONS]
    rows = lake.tables.read(schemas.CORRECTIONS).where(F.col("_metadata.file_name").isin(sorted(since)))
    return lake.rows(holder, rows)
