"""Tombstones as rows of the table corrections, whatever a pipeline computes."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.jobs.run import JobRun
from sessionlake.warehouse.changelog import Changelog

IDENTITY = ["session_key", "session_start", "revision"]
"""What a tombstone names: a session or window, as of its last change; so the columns of corrections are called."""


def named(rows: DataFrame, of: Changelog, *more: str) -> DataFrame:
    """Return what names rows to tombstones: their IDENTITY, and more of their columns."""
    # Corrections have times: a number is one of so many microseconds.
    start = F.timestamp_micros(of.start) if of.numbered else F.col(of.start)
    return rows.select(F.col(of.key).alias(IDENTITY[0]), start.alias(IDENTITY[1]), "revision", *more)


def tombstones(run: JobRun, rows: DataFrame) -> DataFrame:
    """Return a tombstone for each row, as rows of corrections; of `rows` only IDENTITY is read.

    The correction_id is a function of the job and what is named, so that it shows where two runs name the same.
    """
    text = F.concat_ws("\0", "session_key", F.unix_micros("session_start"), "revision")
    identity = F.concat(F.lit(f"{run.job}-"), F.substring(F.sha2(text, 256), 1, 32))
    return run.corrections(rows.select(*IDENTITY), correction_id=identity, kind=F.lit("tombstone"))


def emitted_tombstones(corrections: DataFrame, job: str) -> DataFrame:
    """Return what the tombstones of a job named, over all its runs."""
    return corrections.where((F.col("job") == job) & (F.col("kind") == "tombstone")).select(*IDENTITY).distinct()
