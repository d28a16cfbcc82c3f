"""The state of a pipeline: watermark, lag, counts that reconcile, store size, last batches. Read without Spark."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from duckdb import DuckDBPyConnection

from sessionlake.config.load import Config
from sessionlake.jobs.followers.positions import FollowerState, followers_of
from sessionlake.jobs.late.status import LateStatus, read_late_status
from sessionlake.jobs.reconcile import CORRECTIONS_SQL, OUTCOMES, Accepted
from sessionlake.observe.readings import store_bytes
from sessionlake.observe.standing import Failing, last_failure
from sessionlake.observe.upstream import LookupState, UpstreamState, lookups_of, upstream_of
from sessionlake.operators.shared.cleanups.names import EVICTED_ROWS, EXPIRED_EVENTS, EXPIRY_LAG, LIVE_ROWS, ROUND
from sessionlake.serve.database import open_database
from sessionlake.stream.changes import refusal
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import changelogs_in, foreign_change, last_batch
from sessionlake.warehouse.lake import Lake

LAST_BATCHES = 5


@dataclass(frozen=True)
class Status:
    """A pipeline's state at the last commit."""

    batch_id: int
    watermark_us: int | None
    committed_us: int
    counts: dict[str, int]
    reconciles: bool
    """input == accepted + late + dead + dropped + emitted + filtered + duplicate, over all batches and against the tables' rows; late as well. Of a keyed
    table accepted == changed + superseded + unchanged.

    And sessions, or windows that each event is in one of, hold the accepted events and those restated, if nothing was
    removed, and nobody else has changed their tables.
    """
    late: LateStatus
    rows: int | None
    """The number of rows of a keyed table with [ttl]; None for others, and if it is not known."""
    expiry_lag_us: int | None
    """The longest time for which a row removed by the last cleanup of [ttl] had been expired by the cleanup's clock; None if unknown."""
    cleanup_round_us: int | None
    """Pattern time_boxed: time before that clock at which the oldest round of a shard began, running or just ended; None for others."""
    store_bytes: int
    store_dir: str
    checkpoint: str
    changelog_version: int
    last_batches: list[dict[str, Any]]
    evicted: int | None = None
    """How many rows of a keyed table with `changelog_retention` went before it was over; None of others."""
    unique_since: Mapping[str, int] = field(default_factory=dict)
    """By event input the batch from which on each event counts once; empty if no input has `unique_for`."""
    lookups: list[LookupState] = field(default_factory=list)
    """The tables that events are looked up in."""
    reads: list[UpstreamState] = field(default_factory=list)
    """The pipelines whose results are read."""
    followers: list[FollowerState] = field(default_factory=list)
    """The pipelines behind and the sinks, as of the moment of the look: they go on without a new batch."""
    failure: Failing | None = None
    """The last failure of a run at the time of the look; None if a run has been well since then."""
    refused: str | None = None
    """The reason for which a run of the config would be refused: a setting to which the tables are bound has changed. None if there is none."""


def read_status(config: Config) -> Status:
    """Return a pipeline's status; PipelineStateError if it has not committed a batch yet."""
    lake, database = open_tables(config)
    with closing(database):
        return status_of(config, lake, database)


def open_tables(config: Config) -> tuple[Lake, DuckDBPyConnection]:
    """Return the lake and a database of its tables for a status; NoBatchesError if there are no batches yet."""
    lake = Lake.of(config)
    last_batch(lake)
    # The snapshot is opened first. A batch can then not be folded into it after its changes were counted.
    lake[lake.changelog.snapshot].open()
    return lake, open_database(config, lake)


def with_followers(config: Config, status: Status) -> Status:
    """Return a status of before with the followers and the last failure as they are now."""
    return replace(status, followers=followers_of(config), failure=last_failure(config))


def status_of(config: Config, lake: Lake, database: DuckDBPyConnection) -> Status:
    """Return a pipeline's status from a database of its tables."""
    # Side tables are committed before the changelog: they may have rows of an uncounted batch.
    last = last_batch(lake)
    last_id = last.batch_id
    own = lake.changelog.counts
    sums = ", ".join(f"coalesce(sum({name}), 0)::bigint" for name in (*schemas.COUNTS, *own))
    summed = database.execute(f"select {sums} from batches where batch_id <= {last_id}").fetchall()[0]
    counts = dict(zip((*schemas.COUNTS, *own), summed, strict=True))
    late = read_late_status(lake, database, last_id, with_ids=config.with_ids)
    forgotten = _was_forgotten(lake, database)
    whole = _rows_add_up(counts, database, late.events, last_id, forgotten=forgotten)
    parts = lake.changelog.accepted_counts
    placed = not parts or counts["accepted"] == sum(counts[name] for name in parts)
    every = lake.changelog.every if config.sums_events else None
    events = every is None or _events_add_up(every, counts, database, last, forgotten=forgotten)
    return Status(
        batch_id=last_id,
        watermark_us=last.watermark_us,
        committed_us=last.committed_us,
        counts=counts,
        reconciles=whole
        and placed
        and events
        and late.reconciles
        and foreign_change(lake, changelogs_in(lake)) is None,
        late=late,
        rows=last.state.get(LIVE_ROWS) if "ttl" in config.live_settings() else None,
        expiry_lag_us=last.state.get(EXPIRY_LAG) if "ttl" in config.live_settings() else None,
        cleanup_round_us=last.state.get(ROUND) if "ttl" in config.live_settings() else None,
        store_bytes=store_bytes(config),
        store_dir=config.driver_store_dir,
        checkpoint=config.checkpoint,
        changelog_version=last.version,
        last_batches=_last_batches(database, last_id),
        evicted=last.state.get(EVICTED_ROWS),
        unique_since=last.settings.unique_since,
        lookups=lookups_of(config, last),
        reads=upstream_of(config, last),
        followers=followers_of(config),
        failure=last_failure(config),
        refused=refusal(config, last),
    )


def _last_batches(database: DuckDBPyConnection, last_id: int) -> list[dict[str, Any]]:
    rows = database.execute(
        f"select * from batches where batch_id <= {last_id} order by batch_id desc limit {LAST_BATCHES}"
    )
    names = [column[0] for column in rows.description]
    return [dict(zip(names, row, strict=True)) for row in rows.fetchall()]


def _rows_add_up(
    counts: dict[str, int], database: DuckDBPyConnection, late: int, batch_id: int, *, forgotten: bool
) -> bool:
    """Check the sums, and that the tables hold as many late and dead events as were counted; no more, if some were erased."""
    out = sum(counts[name] for name in schemas.OUTCOMES)
    # Dead letters of jobs have no batch_id, so they are not counted a second time here.
    of_batches = f"batch_id <= {batch_id} and kind = 'event'"
    dead = database.execute(f"select count(*) from dead_letters where {of_batches}").fetchall()[0][0]
    rows, counted = (late, dead), (counts["late"], counts["dead"])
    kept = all(a <= b for a, b in zip(rows, counted, strict=True)) if forgotten else rows == counted
    return counts["input"] == out and kept


def _events_add_up(
    every: str, counts: dict[str, int], database: DuckDBPyConnection, last: BatchCommit, *, forgotten: bool
) -> bool:
    """Check that a view's rows hold as many events as were accepted."""
    corrections, advances = database.execute(CORRECTIONS_SQL).fetchall()[0]
    applied = f"from correction_outcomes where outcome = 'applied' and batch_id <= {last.batch_id}"
    adding, removing, restated = map(int, database.execute(f"select {', '.join(OUTCOMES)} {applied}").fetchall()[0])
    known = Accepted(
        *(counts["accepted"], counts["applied"], corrections, advances, adding, removing, restated, forgotten),
        expired=int(last.state.get(EXPIRED_EVENTS, 0)),
    )
    if known.events is None:
        return True
    events = database.execute(f"select coalesce(sum(event_count), 0)::bigint from {every}").fetchall()[0][0]
    return known.agrees_with(events)


def _was_forgotten(lake: Lake, database: DuckDBPyConnection) -> bool:
    """Say whether rows were ever erased on purpose: then tables may hold fewer rows than were counted."""
    query = "select 1 from job_runs where job = 'forget' limit 1"
    return lake[schemas.JOB_RUNS].exists() and bool(database.execute(query).fetchall())
