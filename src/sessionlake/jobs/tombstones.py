"""Tombstones as rows of the table corrections, whatever a pipeline computes."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.jobs.run import JobRun
from sessionlake.warehouse.changelog import Changelog

_PLACE = ["session_key", "session_start"]


def identity_of(of: Changelog) -> list[str]:
    """Return what a tombstone names, as the columns of corrections are called: a session or window as of its last change, a pair.

    A pair has the left message's position for its revision, and the right one's for its events.
    """
    return [*_PLACE, "revision", *(["event_count"] if of.numbers else [])]


def named(rows: DataFrame, of: Changelog, *more: str) -> DataFrame:
    """Return what names rows to tombstones (`identity_of`), and more of their columns."""
    # Corrections have times: a number is one of so many microseconds.
    start = F.timestamp_micros(of.start) if of.numbered else F.col(of.start)
    columns = (F.col(of.key), start, *map(F.col, of.numbers or ("revision",)))
    names = zip(columns, identity_of(of), strict=True)
    return rows.select(*(column.alias(name) for column, name in names), *more)


def tombstones(run: JobRun, rows: DataFrame) -> DataFrame:
    """Return a tombstone for each row, as rows of corrections; of `rows` only what names them is read (`named`).

    The correction_id is a function of the job and what is named, so that it shows where two runs name the same.
    """
    names = identity_of(run.tables.changelog)
    text = F.concat_ws("\0", "session_key", F.unix_micros("session_start"), *names[len(_PLACE) :])
    identity = F.concat(F.lit(f"{run.job}-"), F.substring(F.sha2(text, 256), 1, 32))
    return run.corrections(rows.select(*names), correction_id=identity, kind=F.lit("tombstone"))


def emitted_tombstones(corrections: DataFrame, of: Changelog, job: str) -> DataFrame:
    """Return what the tombstones of a job named, over all its runs."""
    ours = corrections.where((F.col("job") == job) & (F.col("kind") == "tombstone"))
    return ours.select(*identity_of(of)).distinct()
