"""Which late events have been reprocessed: derived from what runs pinned and from their appends, never from a flag.

What a run covers is told by `late_runs`. The two kinds of runs, reprocess_late and backfill, take effect in the order
in which they started: `claim` sees to it, and so a run leaves out exactly what the runs before it cover.
The order is a count that each run pins, one above all it sees: hosts' clocks may differ.
"""

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.errors import OvertakenError
from sessionlake.jobs.late.spans import BACKFILL, NUMBER, REPROCESS_LATE, WRITES, LateRun, covered, late_run
from sessionlake.jobs.redeem.ledger import fence_redeems
from sessionlake.jobs.run import JobRun
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import app_id
from sessionlake.warehouse.outcomes import refused_sql, told_from
from sessionlake.warehouse.tables import Tables

COVERED = "covered"


def read_runs(tables: Tables) -> list[LateRun]:
    """Return all runs that cover late events or may, in their order."""
    if not tables[schemas.JOB_RUNS].exists():
        return []
    started = tables[schemas.JOB_RUNS].read().where(F.col("job").isin(*WRITES) & (F.col("event") == "started"))
    rows = started.select("job", "run_id", F.unix_micros("at").alias("at_us"), "pinned").collect()
    ids = [app_id(row.job, row.run_id) for row in rows]
    found = {table: tables[table].app_versions(ids) for table in WRITES[REPROCESS_LATE]}
    runs = [
        late_run(row.job, row.run_id, row.at_us, row.pinned, {table: found[table].get(id_) for table in found})
        for row, id_ in zip(rows, ids, strict=True)
    ]
    return sorted(runs, key=lambda run: run.order)


def next_number(tables: Tables) -> int:
    """Return a number, for a run to pin as NUMBER, above those of all runs that are recorded."""
    return 1 + max((run.number for run in read_runs(tables)), default=0)


def runs_before(run: JobRun) -> list[LateRun]:
    """Return the runs that take effect before this one."""
    ours = (run.pinned.get(NUMBER, run.started_us), run.job, run.run_id)
    return [other for other in read_runs(run.tables) if other.order < ours]


def claim(run: JobRun) -> list[LateRun]:
    """Fence the unfinished runs before this one, and return all before it: what they cover won't change any more.

    Every run is recorded before it claims, so that of two runs at once one sees the other at least: the later fences
    the earlier, and an earlier one that sees a later gives way. Raises OvertakenError where this run has to.
    """
    runs = read_runs(run.tables)
    ours = next(other for other in runs if (other.job, other.run_id) == (run.job, run.run_id))
    later = [other for other in runs if other.order > ours.order and other.alive]
    if later and None in ours.versions.values():
        raise _overtaken(run, later[-1])
    _fence(run.tables, (other for other in runs if other.order < ours.order))
    return runs_before(run)


def fence_runs(tables: Tables) -> None:
    """Keep the unfinished runs of today from appending what they have read before; for a job that erases rows."""
    _fence(tables, read_runs(tables))
    fence_redeems(tables)


def _fence(tables: Tables, runs: Iterable[LateRun]) -> None:
    for run in runs:
        for table in (table for table, version in run.versions.items() if version is None):
            tables[table].fence(app_id(run.job, run.run_id))


def append_claimed(run: JobRun, table: str, rows: DataFrame) -> None:
    """Append a claimed run's rows once; OvertakenError where another run has fenced this one."""
    if not run.append_unless_fenced(table, rows):
        last = read_runs(run.tables)[-1]
        raise _overtaken(run, None if (last.job, last.run_id) == (run.job, run.run_id) else last)


def _overtaken(run: JobRun, by: LateRun | None) -> OvertakenError:
    whom = "an erasure (`forget`)" if by is None else f"run {by.run_id!r} of {by.job}"
    return OvertakenError(
        f"--run-id: {run.run_id!r} of {run.job} was overtaken by {whom}, started after it; "
        "what it had left waits for the next run, start that under a new id"
    )


def mark_covered(tables: Tables, late: DataFrame, runs: Iterable[LateRun], as_of: int) -> DataFrame:
    """Add to late events the column `covered`: by one of the runs, given in their order, as known at a batch.

    An event in a put of a replace correction that went stale is not covered by the backfill that wrote it.
    """
    runs = list(runs)
    stale = stale_puts(tables, runs, as_of)
    marked, marks = with_stale_marks(late, stale) if stale else (late, {})
    return marked.withColumn(COVERED, F.expr(covered(runs, marks))).select(*late.columns, COVERED)


def with_stale_marks(
    late: DataFrame, stale: Mapping[tuple[str, str], DataFrame]
) -> tuple[DataFrame, dict[tuple[str, str], str]]:
    """Join late events with `stale_puts`; return with them, by run, the column that has the batch which refused its put there."""
    time = F.unix_micros("event_time")
    for i, puts in enumerate(stale.values()):
        # Names of their own: the frames share one origin, so that Spark could not tell their columns apart.
        names = [f"{name}_{i}" for name in ("_key", "_from", "_to", "_stale_at")]
        # A backfill's puts of a key never overlap, so that no row comes twice.
        near = (F.col("session_key") == F.col(names[0])) & time.between(F.col(names[1]), F.col(names[2]))
        late = late.join(puts.toDF(*names), near, "left")
    return late, {run: f"_stale_at_{i}" for i, run in enumerate(stale)}


def stale_puts(tables: Tables, runs: list[LateRun], as_of: int) -> dict[tuple[str, str], DataFrame]:
    """Return, for each backfill with stale replacements, their puts: _key, _from, _to, and the batch that refused them."""
    backfills = [run for run in runs if run.job == BACKFILL and run.covers()]
    if not backfills:
        return {}
    # Of slices that have left the stores a replacement is expired: what it would have taken in waits as well.
    outcomes = F.col("outcome").isin(schemas.STALE, schemas.EXPIRED)
    refused = refused_corrections(tables).where(outcomes & (F.col("batch_id") <= as_of))
    refused = refused.select("correction_id", F.col("batch_id").alias("_stale_at"))
    written = tables[schemas.CORRECTIONS].read().where((F.col("job") == BACKFILL) & (F.col("kind") == "replace"))
    stale = written.join(refused, "correction_id")
    ids = {row.run_id for row in stale.select("run_id").distinct().collect()}
    puts = stale.select("run_id", F.col("session_key").alias("_key"), F.explode("put").alias("_put"), "_stale_at")
    start, end = F.unix_micros("_put.session_start"), F.unix_micros("_put.session_end")
    spans = puts.select("run_id", "_key", start.alias("_from"), end.alias("_to"), "_stale_at")
    return {
        (run.job, run.run_id): spans.where(F.col("run_id") == run.run_id).drop("run_id")
        for run in backfills
        if run.run_id in ids
    }


def refused_corrections(tables: Tables) -> DataFrame:
    """Return the corrections that batches refused: correction_id, kind, outcome, batch_id."""
    told, dead_letters = tables[schemas.CORRECTION_OUTCOMES].sql_name(), tables[schemas.DEAD_LETTERS].sql_name()
    return tables.spark.sql(refused_sql(told, dead_letters, told_from(tables)))


def expired_by_runs(dead_letters: DataFrame, run_id: str | None = None) -> DataFrame:
    """Return the late events that runs of reprocess_late, or one of them, found expired."""
    rows = dead_letters.where("batch_id is null and kind = 'event' and reason = 'expired'")
    return rows if run_id is None else rows.where(F.col("commit_id") == run_id)


def restated_by_runs(corrections: DataFrame, run_id: str | None = None) -> DataFrame:
    """Return the corrections of runs of reprocess_late, or of one of them."""
    ours: Column = F.col("job") == REPROCESS_LATE
    return corrections.where(ours if run_id is None else ours & (F.col("run_id") == run_id))
