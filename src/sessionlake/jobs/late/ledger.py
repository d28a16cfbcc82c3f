"""The ledger of late events: derived from the pins and appends of runs, never from a flag.

`late_runs` says which events a run covers. The two kinds of runs, reprocess_late and backfill, take effect in the order
in which they started. `claim` enforces this order, and a run leaves out exactly the events that earlier runs cover. The
order is a number that each run pins, one more than the largest that it sees, because hosts' clocks may differ.
"""

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.errors import OvertakenError
from sessionlake.jobs.late import queries
from sessionlake.jobs.late.spans import BACKFILL, NUMBER, REPROCESS_LATE, WRITES, LateRun, covered, late_run
from sessionlake.jobs.run import JobRun
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import app_id
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.spark_columns import columns
from sessionlake.warehouse.tables import Tables

COVERED = "covered"


def read_runs(tables: Tables) -> list[LateRun]:
    """Return all runs that cover late events or may, in their order."""
    if not tables[schemas.JOB_RUNS].exists():
        return []
    rows = tables.spark.sql(queries.started_runs(tables[schemas.JOB_RUNS].sql_name())).collect()
    ids = [app_id(row.job, row.run_id) for row in rows]
    found = {table: tables[table].app_versions(ids) for table in WRITES[REPROCESS_LATE]}
    runs = [
        late_run(row.job, row.run_id, row.pinned, {table: found[table].get(id_) for table in found})
        for row, id_ in zip(rows, ids, strict=True)
    ]
    return sorted(runs, key=lambda run: run.order)


def next_number(tables: Tables) -> int:
    """Return a number, for a run to pin as NUMBER, above those of all runs that are recorded."""
    return 1 + max((run.number for run in read_runs(tables)), default=0)


def runs_before(run: JobRun) -> list[LateRun]:
    """Return the runs that take effect before this one."""
    ours = (run.pinned[NUMBER], run.job, run.run_id)
    return [other for other in read_runs(run.tables) if other.order < ours]


def claim(run: JobRun) -> list[LateRun]:
    """Fence the unfinished runs before this one, and return all runs before it. The events that they cover no longer change.

    Every run is recorded before it claims. If two runs start at once, at least one therefore sees the other. The later
    one fences the earlier one, and an earlier one that sees a later one gives way. Raises OvertakenError if this run
    has to give way.
    """
    runs = read_runs(run.tables)
    ours = next(other for other in runs if (other.job, other.run_id) == (run.job, run.run_id))
    later = [other for other in runs if other.order > ours.order and other.alive]
    if later and None in ours.versions.values():
        raise _overtaken(run, later[-1])
    _fence(run.tables, (other for other in runs if other.order < ours.order))
    return runs_before(run)


def fence_runs(tables: Tables) -> None:
    """Keep unfinished runs from appending rows that they read before now; for a job that erases rows."""
    _fence(tables, read_runs(tables))


def _fence(tables: Tables, runs: Iterable[LateRun]) -> None:
    for run in runs:
        for table in (table for table, version in run.versions.items() if version is None):
            tables[table].fence(app_id(run.job, run.run_id))


def append_claimed(run: JobRun, table: str, rows: DataFrame) -> None:
    """Append a claimed run's rows once; OvertakenError if another run has fenced this one."""
    if not run.append_unless_fenced(table, rows):
        last = read_runs(run.tables)[-1]
        raise _overtaken(run, None if (last.job, last.run_id) == (run.job, run.run_id) else last)


def _overtaken(run: JobRun, by: LateRun | None) -> OvertakenError:
    whom = "an erasure (`forget`)" if by is None else f"run {by.run_id!r} of {by.job}"
    return OvertakenError(
        f"--run-id: {run.run_id!r} of {run.job} was overtaken by {whom}, started after it; "
        "its remaining work is left to the next run, start that under a new id"
    )


def mark_covered(tables: Tables, late: DataFrame, runs: Iterable[LateRun], as_of: int) -> DataFrame:
    """Add to late events the column `covered`: by one of the runs, given in their order, as known at a batch.

    An event in a put of a replace correction that went stale is not covered by the backfill that wrote it.
    """
    runs = list(runs)
    stale = stale_puts(tables, runs, as_of)
    marked, marks = with_stale_marks(late, stale) if stale else (late, {})
    return marked.withColumn(COVERED, F.expr(covered(runs, marks))).select(*columns(late.columns), COVERED)


def with_stale_marks(
    late: DataFrame, stale: Mapping[tuple[str, str], DataFrame]
) -> tuple[DataFrame, dict[tuple[str, str], str]]:
    """Join late events with `stale_puts`; return with them, by run, the column that has the batch which refused its put there."""
    time = F.unix_micros("event_time")
    for i, puts in enumerate(stale.values()):
        # The columns get separate names: the frames share one origin, and Spark could not distinguish their columns.
        names = [f"{name}_{i}" for name in ("_key", "_from", "_to", "_stale_at")]
        # A backfill's puts of a key never overlap, so no row is joined twice.
        near = (F.col("key") == F.col(names[0])) & time.between(F.col(names[1]), F.col(names[2]))
        late = late.join(puts.toDF(*names), near, "left")
    return late, {run: f"_stale_at_{i}" for i, run in enumerate(stale)}


def stale_puts(tables: Tables, runs: list[LateRun], as_of: int) -> dict[tuple[str, str], DataFrame]:
    """Return, for each backfill with stale replacements, their puts: put_key, from_us, to_us, stale_at."""
    backfills = [run for run in runs if run.job == BACKFILL and run.covers()]
    if not backfills:
        return {}
    written, outcomes = (tables[name].sql_name() for name in (schemas.CORRECTIONS, schemas.CORRECTION_OUTCOMES))
    puts = tables.spark.sql(queries.stale_puts(SPARK, written, f"({queries.refused(outcomes)})", as_of))
    ids = {row.run_id for row in puts.select("run_id").distinct().collect()}
    return {
        (run.job, run.run_id): puts.where(F.col("run_id") == run.run_id).drop("run_id")
        for run in backfills
        if run.run_id in ids
    }


def expired_by_runs(dead_letters: DataFrame, run_id: str | None = None) -> DataFrame:
    """Return the late events that runs of reprocess_late, or one of them, found expired."""
    rows = dead_letters.where(queries.EXPIRED_BY_RUNS)
    return rows if run_id is None else rows.where(F.col("commit_id") == run_id)


def restated_by_runs(corrections: DataFrame, run_id: str | None = None) -> DataFrame:
    """Return the corrections of runs of reprocess_late, or of one of them."""
    ours: Column = F.col("job") == REPROCESS_LATE
    return corrections.where(ours if run_id is None else ours & (F.col("run_id") == run_id))
