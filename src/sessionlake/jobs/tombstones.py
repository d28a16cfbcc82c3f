"""Tombstones as rows of the table corrections."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.jobs.run import JobRun

IDENTITY = ["session_key", "session_start", "revision"]
"""What a tombstone names: a session, as of its last change."""


def tombstones(run: JobRun, sessions: DataFrame) -> DataFrame:
    """Return a tombstone for each session, as rows of corrections; of `sessions` only IDENTITY is read.

    The correction_id is a function of the job and what is named, so that it shows where two runs name the same.
    """
    named = F.concat_ws("\0", "session_key", F.unix_micros("session_start"), "revision")
    identity = F.concat(F.lit(f"{run.job}-"), F.substring(F.sha2(named, 256), 1, 32))
    return run.corrections(sessions.select(*IDENTITY), correction_id=identity, kind=F.lit("tombstone"))


def emitted_tombstones(corrections: DataFrame, job: str) -> DataFrame:
    """Return what the tombstones of a job named, over all its runs."""
    return corrections.where((F.col("job") == job) & (F.col("kind") == "tombstone")).select(*IDENTITY).distinct()
