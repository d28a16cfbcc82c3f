"""Tombstones as rows of the table corrections."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.jobs.runs import JobRun
from sessionlake.tables import spark_schema

IDENTITY = ["session_key", "session_start", "revision"]
"""What a tombstone names: a session, as of its last change."""


def tombstones(run: JobRun, sessions: DataFrame) -> DataFrame:
    """Return a tombstone for each session, as rows of corrections; of `sessions` only IDENTITY is read.

    The correction_id is a function of the job and what is named, so that it shows where two runs name the same.
    """
    named = F.concat_ws("\0", "session_key", F.unix_micros("session_start"), "revision")
    values = {
        "correction_id": F.concat(F.lit(f"{run.job}-"), F.substring(F.sha2(named, 256), 1, 32)),
        "kind": F.lit("tombstone"),
        **{name: F.col(name) for name in IDENTITY},
        "job": F.lit(run.job),
        "run_id": F.lit(run.run_id),
        "created_at": F.timestamp_micros(F.lit(run.started_us)),
    }
    fields = spark_schema(schemas.CORRECTIONS_SCHEMA).fields
    return sessions.select(*(values.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in fields))


def emitted_tombstones(corrections: DataFrame, job: str) -> DataFrame:
    """Return what the tombstones of a job named, over all its runs."""
    return corrections.where((F.col("job") == job) & (F.col("kind") == "tombstone")).select(*IDENTITY).distinct()
