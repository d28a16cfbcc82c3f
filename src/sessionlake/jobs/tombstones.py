"""Tombstones as rows of the table corrections, for any operator."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.jobs.run import JobRun, digest
from sessionlake.warehouse.changelog import Changelog


def followed(config: Config) -> str | None:
    """Return the names of the pipelines and tables that a pipeline's rows follow, so that no tombstone may remove a row; None if the rows follow nothing.

    A row that is removed would be taken back once more when a row in front of it changes.
    """
    sources = [side.source for side in config.inputs.values() if config.subtracts and side.source.takes_back]
    names = sorted({config.upstream[one.AT].name if one.AT in config.upstream else one.place for one in sources})
    return ", ".join(map(repr, names)) or None


def identity_of(of: Changelog) -> list[str]:
    """Return the columns of corrections that a tombstone needs: a session or window in its last revision, or a pair.

    A window by count has its first number as `ordinal`, a pair the positions of the left and the right message.
    """
    if of.numbers:
        return ["key", "start_time", "ordinal", "other_ordinal"]
    return ["key", "start_time" if of.has_times else "ordinal", "revision"]


def named(rows: DataFrame, of: Changelog, *more: str) -> DataFrame:
    """Return the columns by which tombstones name rows (`identity_of`), and more of the rows' columns."""
    names = zip((of.key, of.start, *(of.numbers or ("revision",))), identity_of(of), strict=True)
    return rows.select(*(F.col(column).alias(name) for column, name in names), *more)


def tombstones(run: JobRun, rows: DataFrame) -> DataFrame:
    """Return a tombstone for each row, as rows of corrections. Only the columns of `named` are read.

    The correction_id is a function of the job and the row, which shows if two runs name the same row.
    """
    names = identity_of(run.tables.changelog)
    columns = (F.unix_micros(name) if name == "start_time" else F.col(name) for name in names)
    identity = F.concat(F.lit(f"{run.job}-"), digest(*columns))
    return run.corrections(rows.select(*names), correction_id=identity, kind=F.lit("tombstone"))


def emitted_tombstones(corrections: DataFrame, of: Changelog, job: str) -> DataFrame:
    """Return the rows named by a job's tombstones, over all runs."""
    ours = corrections.where((F.col("job") == job) & (F.col("kind") == "tombstone"))
    return ours.select(*identity_of(of)).distinct()
