"""What became of the late events: late == reprocessed + expired + waiting."""

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from sessionlake.jobs.late.spans import BACKFILL, REPROCESS_LATE, WRITES, LateRun, covered, late_run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import app_id
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.outcomes import refused_sql, told_from


@dataclass(frozen=True)
class LateStatus:
    """The late events of the committed batches."""

    events: int
    reprocessed: int
    """Restated, twins of restated ones, or part of a backfill."""
    expired: int
    """Older than retention when a run found them, which then stand in dead_letters, or when the sessionizer took their correction."""
    waiting: int
    reconciles: bool
    """The ledger, the corrections, and the dead letters of runs tell the same numbers."""


def read_late_status(lake: Lake, database: DuckDBPyConnection, batch_id: int, *, with_ids: bool) -> LateStatus:
    """Return the late events' status as of a batch, from views of the lake's tables; `with_ids` says that twins are recognised."""
    runs = _runs(lake, database)
    refused = refused_sql(schemas.CORRECTION_OUTCOMES, schemas.DEAD_LETTERS, told_from(lake))
    database.execute(f"create or replace temp view refused as {refused}")
    events, taken = _counted(lake, database, runs, batch_id)
    buried = _number(
        database,
        "select count(*) from dead_letters where batch_id is null and kind = 'event' and reason = 'expired'",
    )
    restated, lost = database.execute(
        """
        select coalesce(sum(event_count), 0)::bigint, coalesce(sum(event_count) filter (correction_id in (
            select correction_id from refused where kind like 'restate%')), 0)::bigint
        from corrections where job = $1
        """,
        [REPROCESS_LATE],
    ).fetchall()[0]
    left = taken - buried - restated
    exact = not with_ids and not any(run.job == BACKFILL for run in runs)
    return LateStatus(
        events=events,
        reprocessed=taken - buried - lost,
        expired=buried + lost,
        waiting=events - taken,
        reconciles=left == 0 if exact else left >= 0,
    )


def _runs(lake: Lake, database: DuckDBPyConnection) -> list[LateRun]:
    """Return all runs that cover late events or may, in their order."""
    if not lake[schemas.JOB_RUNS].exists():
        return []
    rows = database.execute(
        "select job, run_id, epoch_us(\"at\"), pinned from job_runs where job in ($1, $2) and event = 'started'",
        [*WRITES],
    ).fetchall()
    runs = []
    for job, run_id, at_us, pinned in rows:
        versions = {table: lake[table].app_version(app_id(job, run_id)) for table in WRITES[job]}
        runs.append(late_run(job, run_id, at_us, pinned, versions))
    return sorted(runs, key=lambda run: run.order)


def _counted(lake: Lake, database: DuckDBPyConnection, runs: list[LateRun], batch_id: int) -> tuple[int, int]:
    """Return how many late events there are, and how many of them the runs cover."""
    database.execute(
        """
        create or replace temp table stale_puts as
        select written.run_id, written.session_key as put_key, refused.batch_id as stale_at,
               epoch_us(put.session_start) as from_us, epoch_us(put.session_end) as to_us
        from (select run_id, session_key, correction_id, unnest(put) as put from corrections
              where job = $1 and kind = 'replace') as written
        join refused using (correction_id) where refused.outcome in ($2, $3) and refused.batch_id <= $4
        """,
        [BACKFILL, schemas.STALE, schemas.EXPIRED, batch_id],
    )
    ids = {row[0] for row in database.execute("select distinct run_id from stale_puts").fetchall()}
    stale = [run for run in runs if run.job == BACKFILL and run.run_id in ids and run.covers()]
    # A backfill's puts of a key never overlap, so that no row comes twice.
    joins = " ".join(
        f"left join (select put_key, from_us, to_us, stale_at as stale_at_{i} from stale_puts where run_id = ${i + 2}) as puts_{i} "
        f"on puts_{i}.put_key = late.session_key and epoch_us(late.event_time) between puts_{i}.from_us and puts_{i}.to_us"
        for i in range(len(stale))
    )
    marks = {(run.job, run.run_id): f"stale_at_{i}" for i, run in enumerate(stale)}
    # What is partly late counts as accepted.
    names = lake[schemas.LATE_EVENTS].open().schema().to_arrow().names
    alone = f" and not {schemas.PARTLY}" if schemas.PARTLY in names else ""
    found = database.execute(
        f"select count(*), count(*) filter ({covered(runs, marks)}) from late_events as late {joins} where batch_id <= $1{alone}",
        [batch_id, *(run.run_id for run in stale)],
    ).fetchall()[0]
    return int(found[0]), int(found[1])


def _number(database: DuckDBPyConnection, query: str) -> int:
    return int(database.execute(query).fetchall()[0][0])
