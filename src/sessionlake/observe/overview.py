"""The state of all pipelines of a project, a line each. Read without Spark."""

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from duckdb import DuckDBPyConnection

from sessionlake.config.load import Config
from sessionlake.errors import LakeError, NoBatchesError, PipelineStateError, first_line
from sessionlake.observe.standing import Failing, driver, failing
from sessionlake.observe.status import Status, open_tables, status_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.lake import Lake


class State(Enum):
    """The state of a pipeline, as this machine sees it."""

    RUNNING = "running"
    """A driver on this machine holds its lock."""
    FAILING = "failing"
    """Its driver waits to start it again."""
    STOPPED = "stopped"
    """No driver on this machine runs it."""
    NEW = "new"
    """It has no batches yet."""
    UNREADABLE = "unreadable"
    """Its tables can't be read."""


@dataclass(frozen=True)
class LastRun:
    """The last run of a job."""

    job: str
    at: datetime
    finished: bool


@dataclass(frozen=True)
class Overview:
    """One pipeline of several."""

    name: str
    config: Config
    state: State
    status: Status | None = None
    """None if it has no batches, or can't be read."""
    told: str = ""
    """The reason for which it fails or can't be read."""
    jobs: tuple[LastRun, ...] = ()
    """The last run of each job, the newest one first."""
    verdict: bool | None = None
    """Whether the last run of `quality` found nothing; None if there was none."""

    def lag_s(self, now_us: int) -> float | None:
        """Return the seconds by which the watermark is behind a time."""
        watermark_us = self.status.watermark_us if self.status else None
        return None if watermark_us is None else (now_us - watermark_us) / 1e6


def overviews(configs: Iterable[Config]) -> list[Overview]:
    """Return the state of each pipeline, in the order given; one that can't be read leaves the others."""
    return [overview(config) for config in configs]


def overview(config: Config) -> Overview:
    """Return the state of a pipeline."""
    name, fails = config.pipeline.name, failing(config)
    try:
        lake, database = open_tables(config)
    except NoBatchesError:
        return Overview(name, config, _state(config, fails, State.NEW), told=_told(fails))
    except (LakeError, PipelineStateError, OSError) as error:
        return Overview(name, config, State.UNREADABLE, told=first_line(error))
    with closing(database):
        try:
            status = status_of(config, lake, database)
            jobs, verdict = _jobs(lake, database), _verdict(lake, database)
        except (LakeError, PipelineStateError, OSError) as error:
            return Overview(name, config, State.UNREADABLE, told=first_line(error))
    return Overview(name, config, _state(config, fails, State.STOPPED), status, _told(fails), jobs, verdict)


def _state(config: Config, fails: Failing | None, otherwise: State) -> State:
    if fails is not None:
        return State.FAILING
    return State.RUNNING if driver(config) is not None else otherwise


def _told(fails: Failing | None) -> str:
    return "" if fails is None else fails.error


def _jobs(lake: Lake, database: DuckDBPyConnection) -> tuple[LastRun, ...]:
    if not lake[schemas.JOB_RUNS].exists():
        return ()
    query = 'select job, max("at"), arg_max(event, "at") from job_runs group by job order by 2 desc'
    return tuple(LastRun(job, at, event == "finished") for job, at, event in database.execute(query).fetchall())


def _verdict(lake: Lake, database: DuckDBPyConnection) -> bool | None:
    """Say whether no critical check failed in the last finished run of `quality`."""
    if not lake[schemas.JOB_RUNS].exists():
        return None
    query = "select counts from job_runs where job = 'quality' and event = 'finished' order by \"at\" desc limit 1"
    found: list[tuple[Any, ...]] = database.execute(query).fetchall()
    return not json.loads(found[0][0] or "{}").get("failed_critical", 0) if found else None
