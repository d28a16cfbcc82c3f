"""The record of scheduled jobs: a run is done once, however often it is started, killed and started again."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sessionlake.aggregates.layouts import Layout
from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.errors import FencedError, JobError, NotNeededError
from sessionlake.jobs.registry import BY_NAME
from sessionlake.stopping import runs_as
from sessionlake.stream.lock import check_checkpoint
from sessionlake.warehouse import schemas
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.batches import changelogs_in, check_history, find_last_batch, last_batch
from sessionlake.warehouse.delta_log import FENCED, app_id
from sessionlake.warehouse.tables import Tables, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OnStep = Callable[[str], None]
"""A function that receives the job's next step, for people."""


def unheard(_: str) -> None:
    """Ignore the next step of a job, if nobody listens."""


@dataclass(frozen=True)
class JobReport:
    """The result of a run: numbers by name, and lines for people."""

    job: str
    run_id: str
    counts: dict[str, int]
    notes: list[str] = field(default_factory=list)
    dry_run: bool = False
    repeated: bool = False
    """The run was finished before; these are the numbers it had then."""
    failed: bool = False
    """The work is done, and its verdict is no: the command ends with exit code 8 (FOUND)."""


@dataclass
class Steps:
    """How many steps a run has taken, and how many there are, once that is known."""

    done: int = 0
    total: int | None = None


@dataclass(frozen=True)
class JobRun:
    """One run of a job. All attempts see the first one's pinned inputs; each step of writing takes effect once."""

    tables: Tables
    job: str
    run_id: str
    started_us: int
    """When the first attempt started: the run's `now`."""
    pinned: dict[str, Any]
    dry_run: bool
    finished: JobReport | None
    """The report of an earlier attempt that came to its end; then there is nothing left to do."""
    on_step: OnStep = unheard
    steps: Steps = field(default_factory=Steps)

    def expect(self, steps: int) -> None:
        """Note that this number of steps is to come from here on."""
        self.steps.total = self.steps.done + steps

    def say(self, what: str) -> None:
        """Report the next step to people, with its number and the number of steps if these are known."""
        self.steps.done += 1
        numbered = self.steps.total is not None and self.steps.done <= self.steps.total
        self.on_step(f"{self.steps.done} of {self.steps.total}: {what}" if numbered else what)

    @property
    def app_id(self) -> str:
        """The id under which the run appends to tables."""
        return app_id(self.job, self.run_id)

    @contextmanager
    def step(self, what: str, point: str | None = None) -> Iterator[None]:
        """Report a step to people while the block runs; with `point` tests may kill the process at its ends.

        The points are `<job>_before_<point>` and, if the block came to its end, `<job>_after_<point>`
        (engine/failpoints.py).
        """
        self.say(what)
        if point is not None:
            failpoints.hit(f"{self.job}_before_{point}")
        yield
        if point is not None:
            failpoints.hit(f"{self.job}_after_{point}")

    def append(self, table: str, rows: "DataFrame", step: int = 0) -> None:
        """Append a step's rows unless this run has done so before. Steps of a table count up from 0. A dry run writes nothing."""
        if not self.dry_run:
            self.tables[table].append(rows, self.app_id, step)

    def append_unless_fenced(self, table: str, rows: "DataFrame") -> bool:
        """Append as `append` does; True if the table has the rows now, False if another run has fenced this run."""
        try:
            self.append(table, rows)
        except FencedError:
            # Either a fence, or another attempt of this run that does the same: the table says which.
            if self.tables[table].app_version(self.app_id) is None:
                raise
        return self.dry_run or self.tables[table].app_version(self.app_id) != FENCED

    def corrections(self, rows: "DataFrame", layouts: Sequence[Layout] = (), **fields: "Column") -> "DataFrame":
        """Return the run's rows of the table corrections, see `shaped`; states are of the last of `layouts`, if there are any."""
        ours = {
            "job": F.lit(self.job),
            "run_id": F.lit(self.run_id),
            "created_at": F.timestamp_micros(F.lit(self.started_us)),
        }
        if layouts:
            ours[schemas.LAYOUT] = F.lit(len(layouts) - 1)
        known = self.tables[schemas.CORRECTIONS].read().columns
        schema = schemas.corrections(
            until=schemas.OPEN_UNTIL in known, layout=schemas.LAYOUT in known, ids=schemas.ID_FIELDS[0].name in known
        )
        return shaped(rows, schema, **ours, **fields)

    def steps_done(self, table: str) -> int:
        """Return how many steps of this run a table has; none if another run has kept it from appending."""
        version = self.tables[table].app_version(self.app_id)
        return 0 if version is None or version == FENCED else version + 1

    def finish(self, counts: dict[str, int], notes: list[str] | None = None) -> JobReport:
        """Record the end of the run and return its report."""
        if not self.dry_run:
            _record(self.tables, self.job, self.run_id, "finished", time.time_ns() // 1000, {}, self.pinned, counts)
        return JobReport(self.job, self.run_id, counts, notes or [], self.dry_run)


def start_run(
    spark: "SparkSession",
    config: Config,
    job: str,
    *,
    run_id: str | None,
    arguments: Mapping[str, Any],
    pin: Callable[[Tables], dict[str, Any]],
    dry_run: bool,
    on_step: OnStep = unheard,
) -> JobRun:
    """Start a run, or resume the run that was started before under the same id, with the versions that it pinned.

    `pin` returns the versions of the inputs, as JSON values. `on_step` receives the names of the run's steps. Tests may
    kill the process at the point `<job>_started`, if there is work left.

    Raises NoBatchesError if the pipeline has no batches yet, and PipelineStateError if it can't get any. Raises JobError if the run was started with other
    arguments, or if its record has been deleted since. Raises NotNeededError if the pipeline's operator has no use for
    the job.
    """
    require_known(config, job)
    tables = Tables.of(spark, config)
    if find_last_batch(tables) is None:
        # Else a job would ask for a run, and that run would refuse the checkpoint.
        check_checkpoint(tables, config, None)
    last_batch(tables)
    check_history(tables, changelogs_in(tables))
    now_us = time.time_ns() // 1000
    run_id = run_id or f"{datetime.fromtimestamp(now_us / 1e6, UTC):%Y-%m-%dT%H-%M-%S.%f}"
    if not dry_run:
        runs_as(run_id)
    found = _find(tables, job, run_id)
    if not found and not dry_run:
        tables[schemas.JOB_RUNS].create(
            schemas.JOB_RUNS_SCHEMA, "Runs of scheduled jobs: what they pinned, read and wrote"
        )
        _record(tables, job, run_id, "started", now_us, arguments, pin(tables), None)
        found = _find(tables, job, run_id)
    started = found.get("started")
    if started is None:
        if not dry_run:
            raise JobError(
                f"--run-id: {run_id!r} of {job}: its record is gone, by age or with a key; choose another run id"
            )
        failpoints.hit(f"{job}_started")
        return JobRun(tables, job, run_id, now_us, pin(tables), dry_run, None, on_step)
    if started["arguments"] != json.dumps(arguments, sort_keys=True):
        raise JobError(
            f"--run-id: {run_id!r} of {job} was started with {started['arguments']}, not {json.dumps(arguments, sort_keys=True)}; "
            "repeat it with those, or choose another run id"
        )
    finished = found.get("finished")
    report = None
    if finished is not None:
        report = JobReport(job, run_id, json.loads(finished["counts"]), dry_run=dry_run, repeated=True)
    else:
        failpoints.hit(f"{job}_started")
    return JobRun(tables, job, run_id, started["at_us"], json.loads(started["pinned"]), dry_run, report, on_step)


def require_known(config: Config, job: str) -> None:
    """Raise NotNeededError if a job of the registry needs a capability that the pipeline's operator lacks, or events that nothing keeps."""
    found = BY_NAME.get(job)
    if found is None:
        return
    reason = config.entry.lacks.get(found.needs)
    if reason is not None:
        raise NotNeededError(f"{found.command}: a [{config.operator}] {reason}")
    if found.needs == "recompute" and config.upstream and not config.pipeline.archive:
        names = " and ".join(repr(one.name) for one in config.upstream.values())
        raise NotNeededError(
            f"{found.command}: the results of {names} can't be read again as they were; use `sessionlake rebuild`, or "
            "write pipeline.archive = true: then events of later batches can be backfilled"
        )


def shaped(rows: "DataFrame", schema: pa.Schema, **fields: "Column") -> "DataFrame":
    """Return rows as a schema has them: of each column the field given, else the rows' own, else null."""
    return rows.select(
        *(
            fields.get(f.name, F.col(f.name) if f.name in rows.columns else F.lit(None)).cast(f.dataType).alias(f.name)
            for f in spark_schema(schema).fields
        )
    )


def digest(*parts: "Column") -> "Column":
    """Return 32 hexadecimal digits for texts that name a row. Nulls are left out.

    SHA-256, because senders choose keys and events, and can make two texts with the same MD5.
    """
    return F.substring(F.sha2(F.concat_ws("\0", *parts), 256), 1, 32)


def was_forgotten(tables: Tables) -> bool:
    """Say whether rows were ever erased on purpose: then tables may hold fewer rows than were counted."""
    return tables[schemas.JOB_RUNS].exists() and not tables[schemas.JOB_RUNS].read().where("job = 'forget'").isEmpty()


def _find(tables: Tables, job: str, run_id: str) -> dict[str, dict[str, Any]]:
    if not tables[schemas.JOB_RUNS].exists():
        return {}
    rows = tables[schemas.JOB_RUNS].read().where((F.col("job") == job) & (F.col("run_id") == run_id))
    return {row["event"]: row.asDict() for row in rows.withColumn("at_us", F.unix_micros("at")).collect()}


def _record(
    tables: Tables,
    job: str,
    run_id: str,
    event: str,
    at_us: int,
    arguments: Mapping[str, Any],
    pinned: Mapping[str, Any],
    counts: Mapping[str, int] | None,
) -> None:
    """Append a row to job_runs; if two attempts do it at once, one row counts."""
    values = (arguments, pinned)
    texts = [json.dumps(value, sort_keys=True) for value in values]
    row = dict(
        zip(
            schemas.JOB_RUNS_SCHEMA.names,
            [job, run_id, event, at_us, *texts, None if counts is None else json.dumps(counts)],
            strict=True,
        )
    )
    table = pa.Table.from_pylist([row], schema=schemas.JOB_RUNS_SCHEMA)
    frame = tables.spark.createDataFrame(table, spark_schema(table.schema)).coalesce(1)
    # A FencedError says that another attempt records the same at this moment, which is as good.
    with suppress(FencedError):
        tables[schemas.JOB_RUNS].append(frame, f"{app_id(job, run_id)}/{event}", 0)
