"""The outcome of the late events: late == reprocessed + expired + waiting."""

import json
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from sessionlake.jobs.again.runs import started_runs
from sessionlake.jobs.late import spans
from sessionlake.jobs.late.spans import BACKFILL, REPROCESS_LATE, WRITES, LateRun, covered
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import app_id
from sessionlake.warehouse.dialects import DUCKDB
from sessionlake.warehouse.lake import Lake


@dataclass(frozen=True)
class LateStatus:
    """The late events of the committed batches."""

    events: int
    reprocessed: int
    """Restated events, twins of restated events, and events in a backfill."""
    expired: int
    """Events older than retention when a run found them, which are dead letters now, or when the stream took their correction."""
    waiting: int
    reconciles: bool
    """Whether the ledger, the corrections, and the dead letters of runs have the same numbers."""


def read_late_status(lake: Lake, database: DuckDBPyConnection, batch_id: int, *, with_ids: bool) -> LateStatus:
    """Return the late events' status as of a batch, from views of the lake's tables; `with_ids` says that twins are recognised."""
    runs = _runs(lake, database)
    database.execute(f"create or replace temp view refused as {spans.refused(schemas.CORRECTION_OUTCOMES)}")
    events, taken = _counted(lake, database, runs, batch_id)
    buried = _number(
        database,
        f"select count(*) from dead_letters where {spans.EXPIRED_BY_RUNS}",
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
    rows = database.execute(started_runs(schemas.JOB_RUNS, WRITES)).fetchall()
    runs = []
    for job, run_id, pinned in rows:
        versions = {table: lake[table].app_version(app_id(job, run_id)) for table in WRITES[job]}
        runs.append(LateRun(job, run_id, json.loads(pinned), versions))
    return sorted(runs, key=lambda run: run.order)


def _counted(lake: Lake, database: DuckDBPyConnection, runs: list[LateRun], batch_id: int) -> tuple[int, int]:
    """Return how many late events there are, and how many of them the runs cover."""
    puts = spans.stale_puts(DUCKDB, schemas.CORRECTIONS, "refused", batch_id)
    database.execute(f"create or replace temp table stale_puts as {puts}")
    ids = {row[0] for row in database.execute("select distinct run_id from stale_puts").fetchall()}
    stale = [run for run in runs if run.job == BACKFILL and run.run_id in ids and run.covers()]
    # A backfill's puts of a key never overlap, so no row is joined twice.
    joins = " ".join(
        f"left join (select put_key, from_us, to_us, stale_at as stale_at_{i} from stale_puts where run_id = ${i + 2}) as puts_{i} "
        f"on puts_{i}.put_key = late.key and epoch_us(late.event_time) between puts_{i}.from_us and puts_{i}.to_us"
        for i in range(len(stale))
    )
    marks = {(run.job, run.run_id): f"stale_at_{i}" for i, run in enumerate(stale)}
    # An event that is late for only some windows counts as accepted.
    names = lake[schemas.LATE_EVENTS].open().schema().to_arrow().names
    alone = f" and not {schemas.PARTLY}" if schemas.PARTLY in names else ""
    found = database.execute(
        f"select count(*), count(*) filter ({covered(runs, marks)}) from late_events as late {joins} where batch_id <= $1{alone}",
        [batch_id, *(run.run_id for run in stale)],
    ).fetchall()[0]
    return int(found[0]), int(found[1])


def _number(database: DuckDBPyConnection, query: str) -> int:
    return int(database.execute(query).fetchall()[0][0])
