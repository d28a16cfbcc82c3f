"""The state of all pipelines of a project, a line each. Read without Spark."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from duckdb import DuckDBPyConnection

from sessionlake.config.load import Config
from sessionlake.errors import NoBatchesError, first_line
from sessionlake.observe.standing import driver, failing, last_failure, phase
from sessionlake.observe.status import Status, open_tables, status_of, with_followers
from sessionlake.observe.watch import PASSING
from sessionlake.stream.phase import ENDED, STARTING
from sessionlake.warehouse import schemas
from sessionlake.warehouse.lake import Lake


class State(Enum):
    """The state of a pipeline, as this machine sees it."""

    STARTING = "starting"
    """A driver on this machine holds its lock, and has yet to commit a batch or to wait for input."""
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
class Tables:
    """What the tables of a pipeline say."""

    status: Status
    jobs: tuple[LastRun, ...]
    verdict: bool | None


@dataclass(frozen=True)
class Overview:
    """A pipeline of several."""

    name: str
    config: Config
    state: State
    tables: Tables | None = None
    """None if it has no batches, or can't be read."""
    told: str = ""
    """The reason for which it fails or can't be read, or for which its last run has failed."""
    failed_us: int | None = None
    """When its last run failed; None if a run has been well since then, or is at work."""
    ended: bool | None = None
    """Whether its last run on this machine ended as asked: by a signal, or with `--once` at the end of its input. None if it
    has not ended, or if that is not known."""

    @property
    def status(self) -> Status | None:
        """The state as of the last commit."""
        return None if self.tables is None else self.tables.status

    @property
    def jobs(self) -> tuple[LastRun, ...]:
        """Each job's last run, the newest first."""
        return () if self.tables is None else self.tables.jobs

    @property
    def verdict(self) -> bool | None:
        """Whether the last run of `quality` had no critical finding; None if there was none."""
        return None if self.tables is None else self.tables.verdict

    @property
    def last_run(self) -> str:
        """The line that says why the last run failed, if nothing runs the pipeline now; empty if it has not."""
        waits = self.state in (State.STOPPED, State.NEW)
        return f"the last run failed: {self.told}" if waits and self.failed_us is not None else ""

    def lag_s(self, now_us: int) -> float | None:
        """Return the seconds by which the watermark is behind a time."""
        watermark_us = self.status.watermark_us if self.status else None
        return None if watermark_us is None else (now_us - watermark_us) / 1e6


def read_tables(config: Config) -> Tables:
    """Return what a pipeline's tables say; NoBatchesError if there are no batches yet, or another error of PASSING."""
    lake, database = open_tables(config)
    with closing(database):
        return Tables(status_of(config, lake, database), _jobs(lake, database), _verdict(lake, database))


def looked_again(config: Config, tables: Tables) -> Tables:
    """Return what was read before with the followers as they are now."""
    return replace(tables, status=with_followers(config, tables.status))


def overview(config: Config, read: Callable[[], Tables] | None = None) -> Overview:
    """Return a pipeline's state, with its tables read by `read`; an unreadable pipeline is a state, too."""
    name, fails, tables, told, otherwise = config.pipeline.name, failing(config), None, "", State.STOPPED
    try:
        tables = read_tables(config) if read is None else read()
    except NoBatchesError:
        otherwise = State.NEW
    except PASSING as error:
        otherwise, told = State.UNREADABLE, first_line(error)
    except Exception as error:  # noqa: BLE001 (a table may have anything: the other pipelines are shown)
        otherwise, told = State.UNREADABLE, f"{type(error).__name__}: {first_line(error)}"
    if fails is not None:
        return Overview(name, config, State.FAILING, tables, fails.error, fails.at_us)
    reached = phase(config)
    if otherwise is not State.UNREADABLE and driver(config) is not None:
        return Overview(name, config, State.STARTING if reached == STARTING else State.RUNNING, tables, told)
    ended = None if reached is None else reached == ENDED
    failure = last_failure(config)
    if failure is None:
        return Overview(name, config, otherwise, tables, told, ended=ended)
    return Overview(name, config, otherwise, tables, told or failure.error, failure.at_us, ended)


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
