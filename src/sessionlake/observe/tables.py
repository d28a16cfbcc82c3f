"""Metrics from the tables, which exist also while no stream runs. Read without Spark."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from duckdb import DuckDBPyConnection

from sessionlake.config.load import Config
from sessionlake.jobs.followers.positions import FollowerState
from sessionlake.observe import metrics
from sessionlake.observe.counts import count_values
from sessionlake.observe.readings import Readings, store_bytes
from sessionlake.observe.status import Status, open_tables, status_of, with_followers
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import FOLD
from sessionlake.warehouse.lake import Lake

_REASONS = 30


@dataclass(frozen=True)
class TablesState:
    """The metrics of a pipeline's tables at a time."""

    status: Status
    batches: int
    unfolded_batches: int
    unfolded_changes: int
    unfolded_since_us: int | None
    """Commit of the first batch outside of compaction's fold; None if all are folded."""
    dead_letters: dict[str, int]
    sizes: dict[str, tuple[int, int]]
    """Files and bytes by table."""
    started_us: dict[str, int]
    finished_us: dict[str, int]
    """The start of each job's last run, and the end of its last ended run."""
    failed_checks: dict[tuple[str, str], int]
    """By table and severity, the failed checks of the last run of quality; 0 if none failed."""


def read_state(config: Config) -> TablesState:
    """Return the metrics from the tables; NoBatchesError if there are no batches yet."""
    lake, database = open_tables(config)
    with closing(database):
        fold = lake[lake.changelog.snapshot].app_version(FOLD)
        rest = f"filter (batch_id > {-1 if fold is None else fold})"
        found = database.execute(f"""
            select count(*), count(*) {rest}, coalesce(sum(upserts + deletes) {rest}, 0)::bigint, min(epoch_us(committed_at)) {rest}
            from batches
        """).fetchall()[0]
        runs = _last_runs(lake, database)
        return TablesState(
            status=status_of(config, lake, database),
            batches=found[0],
            unfolded_batches=found[1],
            unfolded_changes=found[2],
            unfolded_since_us=found[3],
            dead_letters=_by_reason(database),
            sizes={
                name: lake[name].size() for name in (*lake.changelog.tables, *schemas.SHARED) if lake[name].exists()
            },
            started_us=runs.get("started", {}),
            finished_us=runs.get("finished", {}),
            failed_checks=_failed_checks(lake, database),
        )


def looked_again(config: Config, state: TablesState) -> TablesState:
    """Return what was read before with the followers as they are now."""
    return replace(state, status=with_followers(config, state.status))


def _by_reason(database: DuckDBPyConnection) -> dict[str, int]:
    """Count rows by their reason's text before the quoted value: a label must not hold a value from the data."""
    rows = database.execute(f"""
        select split_part(reason, ':', 1) as what, count(*) as n from dead_letters
        group by what order by n desc, what nulls first limit {_REASONS}
    """).fetchall()
    return {kind or "none": n for kind, n in rows}


def _last_runs(lake: Lake, database: DuckDBPyConnection) -> dict[str, dict[str, int]]:
    """Return the last time by event and job."""
    runs: dict[str, dict[str, int]] = {}
    if lake[schemas.JOB_RUNS].exists():
        last = database.execute('select event, job, max(epoch_us("at")) from job_runs group by event, job')
        for event, job, at_us in last.fetchall():
            runs.setdefault(event, {})[job] = at_us
    return runs


def _failed_checks(lake: Lake, database: DuckDBPyConnection) -> dict[tuple[str, str], int]:
    if not lake[schemas.QUALITY_RESULTS].exists():
        return {}
    rows = database.execute("""
        select "table", severity, count(*) filter (not success) from quality_results
        where run_id = (select max_by(run_id, "at") from quality_results) group by "table", severity
    """).fetchall()
    return {(table, severity): failed for table, severity, failed in rows}


def readings_of(config: Config, state: TablesState) -> Readings:
    """Return the metrics of a state, as of now."""
    status, readings = state.status, Readings(config.pipeline.name)
    readings.set(metrics.BATCHES, state.batches)
    for metric, value, labels in count_values(status.counts):
        readings.set(metric, value, *labels)
    if status.watermark_us is not None:
        readings.set(metrics.WATERMARK, status.watermark_us / 1e6)
    readings.set(metrics.LAST_COMMIT, status.committed_us / 1e6)
    readings.set(metrics.STORE_BYTES, store_bytes(config))
    readings.set(metrics.RECONCILES, int(status.reconciles))
    for name in ("reprocessed", "expired", "waiting"):
        readings.set(metrics.LATE_EVENTS, getattr(status.late, name), name)
    _set_followers(readings, status.followers)
    for reason, rows in state.dead_letters.items():
        readings.set(metrics.DEAD_LETTERS, rows, reason)
    since = state.unfolded_since_us
    readings.set(metrics.SNAPSHOT, time.time() if since is None else since / 1e6)
    readings.set(metrics.UNFOLDED_BATCHES, state.unfolded_batches)
    readings.set(metrics.UNFOLDED_CHANGES, state.unfolded_changes)
    for table, (files, bytes_) in state.sizes.items():
        readings.set(metrics.TABLE_FILES, files, table)
        readings.set(metrics.TABLE_BYTES, bytes_, table)
    for metric, times in ((metrics.JOB_START, state.started_us), (metrics.JOB_SUCCESS, state.finished_us)):
        for job, at_us in times.items():
            readings.set(metric, at_us / 1e6, job)
    for (table, severity), failed in state.failed_checks.items():
        readings.set(metrics.FAILED_CHECKS, failed, table, severity)
    return readings


def _set_followers(readings: Readings, followers: Sequence[FollowerState]) -> None:
    now_us = time.time_ns() // 1000
    for follower in followers:
        readings.set(metrics.FOLLOWER_READABLE, int(follower.unreadable is None), follower.name)
        behind_s = follower.behind_s(now_us)
        if follower.behind is not None and behind_s is not None:
            readings.set(metrics.FOLLOWER_BATCHES, follower.behind, follower.name)
            readings.set(metrics.FOLLOWER_SECONDS, behind_s, follower.name)
