"""Identities of batches, next to the events that they counted (docs/rules.md, rules 221 and 226)."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables

ROWS, TAKEN, TRIMMED = "id_rows", "ids_taken", "ids_trimmed"
"""Columns of a batch: its rows in event_ids, the identities it counted, and whether `compact` may have removed some."""
TWICE = "ids_twice"
"""The identities that event_ids has more than once, the same in each row; null if there is no such table."""
TYPES = {ROWS: "bigint", TAKEN: "bigint", TRIMMED: "boolean", TWICE: "bigint"}


def with_identities(
    batches: DataFrame, tables: Tables, committed: Callable[[str], DataFrame], since: int | None
) -> DataFrame:
    """Return batches with the columns TYPES; `committed` returns a side table's rows of committed batches.

    `since` is the batch from which on all events are remembered; None if some never are. TAKEN is null of batches before it.
    """
    if since is None:
        return batches.withColumns({name: F.lit(None).cast(type_) for name, type_ in TYPES.items()})
    ids = committed(schemas.EVENT_IDS)
    marks = {field.name for field in schemas.BATCH_MARKS}
    identity = [name for name in ids.columns if name not in marks]
    twice = ids.groupBy(*identity).count().where("count > 1").count()
    rows = ids.groupBy("batch_id").agg(F.count("*").alias(ROWS))
    applied = _restated(tables, committed).groupBy("batch_id").agg(F.count("*").alias("_restated"))
    return (
        batches.join(rows, "batch_id", "left")
        .join(applied, "batch_id", "left")
        .withColumns(
            {
                ROWS: F.coalesce(ROWS, F.lit(0).cast("bigint")),
                TAKEN: F.when(
                    F.col("batch_id") >= since,
                    F.col("accepted") + F.col("late") + F.coalesce("_restated", F.lit(0).cast("bigint")),
                ),
                TRIMMED: F.unix_micros("committed_at") <= F.lit(_compacted_us(tables)),
                TWICE: F.lit(twice).cast("bigint"),
            }
        )
        .drop("_restated")
    )


def _restated(tables: Tables, committed: Callable[[str], DataFrame]) -> DataFrame:
    """Return applied corrections that brought in a single event, each with its identity."""
    corrections = tables[schemas.CORRECTIONS].read()
    name = schemas.ID_FIELDS[1].name
    named = corrections.where(F.col(name).isNotNull() if name in corrections.columns else F.lit(False))
    applied = committed(schemas.CORRECTION_OUTCOMES).where(F.col("outcome") == schemas.APPLIED)
    return applied.join(named.select("correction_id").distinct(), "correction_id", "left_semi")


def _compacted_us(tables: Tables) -> int:
    """Return the time until which `compact` may have removed identities beyond retention: its last run's, or for ever if a run has not ended."""
    if not tables[schemas.JOB_RUNS].exists():
        return -1
    runs = tables[schemas.JOB_RUNS].read().where("job = 'compact'").groupBy("run_id")
    until = F.when(F.bool_or(F.col("event") == "finished"), F.max(F.unix_micros("at"))).otherwise(F.lit(2**62))
    latest_us: int | None = runs.agg(until.alias("until")).agg(F.max("until")).collect()[0][0]
    return -1 if latest_us is None else latest_us
