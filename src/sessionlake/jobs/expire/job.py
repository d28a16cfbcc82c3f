"""The job expire: outside of the stream, it reads the changelog to its end and sends tombstones for rows that have expired."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.errors import ConfigError, FencedError, JobError, NotNeededError, first_line
from sessionlake.jobs.expire.plan import Plan, make_plan
from sessionlake.jobs.expire.rule import Rule
from sessionlake.jobs.expire.topic import require_topic, send_tombstones
from sessionlake.jobs.run import JobReport, JobRun, OnStep, start_run
from sessionlake.jobs.tombstones import followed, tombstones
from sessionlake.stream.capabilities import TopicTombstones
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.changelog import CAUSE
from sessionlake.warehouse.tables import Table, Tables
from sessionlake.warehouse.views import pinned_versions, row_versions

JOB = "expire"
_CAUSE = "expire"
"""The cause in the job's tombstones to a topic; tombstones of a stream's cleanups have another cause."""
INTERVAL_S = 10
"""Seconds between two appends: a stream's trigger is of this order, and a commit costs the same for 10 or 100,000 rows."""


@dataclass
class Pace:
    """Let each append begin no sooner than the interval after the previous append."""

    interval_s: float = INTERVAL_S
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _last: float | None = field(default=None, init=False)

    @property
    def left_s(self) -> float:
        """Seconds until the next append may begin."""
        return 0.0 if self._last is None else max(0.0, self._last + self.interval_s - self.clock())

    def wait(self) -> None:
        """Return when the next append may begin."""
        if self._last is not None:
            self.sleep(self.left_s)
        self._last = self.clock()


def expire(
    spark: SparkSession,
    config: Config,
    *,
    where: str | None = None,
    ttl: str | None = None,
    tables: Mapping[str, str] | None = None,
    max_per_run: int | None = None,
    max_per_second: int | None = None,
    max_share: float | None = None,
    run_id: str | None = None,
    dry_run: bool = False,
    pace: Pace | None = None,
    on_step: OnStep = lambda _: None,
    to_topic: bool = False,
) -> JobReport:
    """Append a tombstone for each expired row that has none yet at its revision; the rule given here replaces the config's.

    No row gets two tombstones at one revision, even if runs overlap: the appends of all runs are one sequence (Delta's
    txnVersion), and a run that finds another's append after its pinned version stops there. A run that would remove
    more than `max_share` of all rows is refused with JobError before the first tombstone; a dry run says so in its
    notes.

    With `to_topic` tombstones go to the source's topic instead. They may repeat, because a repeated tombstone is stale.
    """
    if (names := followed(config)) is not None:
        raise NotNeededError(f"expire: the rows follow those of {names}; expire them there")
    topic = require_topic(spark, config) if to_topic else None
    rule = Rule(*_rule(config, where, ttl))
    named = {**config.expire.tables, **{name: _absolute(path) for name, path in (tables or {}).items()}}
    limit = max_per_run or config.expire.max_per_run
    rate = max_per_second or config.expire.max_tombstones_per_second
    arguments = {**asdict(rule), "tables": named, "max_per_run": limit, "max_per_second": rate}
    run = start_run(
        spark,
        config,
        JOB,
        run_id=run_id,
        arguments={**arguments, "to_topic": True} if to_topic else arguments,
        pin=lambda lake: _pin(lake, config, named),
        dry_run=dry_run,
        on_step=on_step,
    )
    if run.finished is not None:
        return run.finished
    with _views(spark, named, run.pinned["tables"]):
        pace = pace or Pace()
        with run.step("looking for expired rows"):
            plan = make_plan(run, rule, limit, max(1, int(rate * pace.interval_s)))
        try:
            # The limit is no part of the run's arguments: a refused run may be taken up again with another limit.
            notes = _within(plan, config.expire.max_share if max_share is None else max_share, dry_run=dry_run)
            done, alone = _emit(run, plan, pace) if topic is None else _send(config, topic, run, plan, pace)
        finally:
            plan.ranked.unpersist()
    left = plan.counts["matched"] - plan.counts["emitted_before"] - done
    counts = {**plan.counts, "expired": done, "left_for_next_run": left}
    if not alone:
        notes.append("another run of expire emitted tombstones meanwhile; this one stopped")
    return run.finish(counts, notes)


def _within(plan: Plan, max_share: float, *, dry_run: bool) -> list[str]:
    try:
        plan.check_share(max_share)
    except JobError as error:
        if not dry_run:
            raise
        return [f"a run would be refused: {error}"]
    return []


def _rule(config: Config, where: str | None, ttl: str | None) -> tuple[int | None, str | None]:
    if where is None and ttl is None:
        where, ttl = config.expire.where, config.expire.ttl
    return None if ttl is None else parse_duration(ttl, "ttl"), where


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).resolve())


def _pin(lake: Tables, config: Config, named: Mapping[str, str]) -> dict[str, Any]:
    # The order matters: the version of corrections must include the sequence's last append, and the version of the
    # snapshot must include the changes that were trimmed from the changelog.
    sequence = lake[schemas.CORRECTIONS].app_version(JOB)
    names = (schemas.CORRECTIONS, *lake.changelog.tables)
    last = last_batch(lake)
    section = config.section.as_taken(last.settings.rebuild, last.settings.live)
    closed_us = section.closed_us(last.watermark_us)
    final: dict[str, Any] = {} if section.facts.removes_open or closed_us is None else {"closed_us": closed_us}
    if not lake.changelog.has_times:
        final = {"final": section.final_sql(lake.changelog.end, last.state)}
    return {
        "sequence": -1 if sequence is None else sequence,
        **{name: lake[name].latest_version() for name in names},
        **final,
        "tables": {name: _version(Table(lake, path.rstrip("/")), name) for name, path in named.items()},
    }


def _version(table: Table, name: str) -> int:
    version = table.latest_version()
    if version < 0:
        raise ConfigError(f"expire.tables.{name}: {table.uri!r} is no Delta table; correct the path")
    return version


@contextmanager
def _views(spark: SparkSession, named: Mapping[str, str], versions: Mapping[str, int]) -> Iterator[None]:
    """Let SQL name the tables, at their pinned versions, for as long as the run lasts."""
    try:
        for name, path in named.items():
            try:
                table = spark.read.format("delta").option("versionAsOf", versions[name]).load(path)
                table.createOrReplaceTempView(name)
            except PySparkException as error:
                raise ConfigError(
                    f"expire.tables.{name}: {path!r} can't be a view ({first_line(error)}); correct the name or the path"
                ) from error
        yield
    finally:
        for name in named:
            spark.catalog.dropTempView(name)


def _emit(run: JobRun, plan: Plan, pace: Pace) -> tuple[int, bool]:
    """Append the tombstones that earlier attempts have not; return the run's number of them, and False if another run came between."""
    if run.dry_run:
        return plan.total, True
    alone, steps = _appended(run)
    while alone and steps < plan.steps:
        pace.wait()
        with run.step(plan.progress(steps + 1), "append"):
            rows = tombstones(run, plan.rows(steps)).coalesce(1)
            metadata = {"job": JOB, "run_id": run.run_id, "step": steps}
            try:
                run.tables[schemas.CORRECTIONS].append(rows, JOB, run.pinned["sequence"] + 1 + steps, metadata)
            except FencedError:
                alone = False
        # An append under a number that another run has used is skipped without an error.
        _, steps = appended = _appended(run)
        alone = alone and appended[0]
    return plan.sent(steps), alone


def _send(config: Config, topic: TopicTombstones, run: JobRun, plan: Plan, pace: Pace) -> tuple[int, bool]:
    """Send all tombstones of the run to the topic, in a retry again; return how many."""
    sent = 0
    for step in range(plan.steps):
        if run.dry_run:
            return plan.total, True
        pace.wait()
        with run.step(plan.progress(step + 1), "topic"):
            if topic.of_keys:
                sent += _send_of_keys(config, topic, run, plan.rows(step))
            else:
                send_tombstones(config, topic, tombstones(run, plan.rows(step)))
                sent = plan.sent(step + 1)
    return sent, True


def _send_of_keys(config: Config, topic: TopicTombstones, run: JobRun, rows: DataFrame) -> int:
    """Send tombstones for the rows of keys, less those whose keys the stream has changed since the run's first attempt; return how many.

    Who reads the topic takes such a tombstone for later than the change.
    """
    of = run.tables.changelog
    pinned = run.tables[of.changes].last_commit(run.pinned[of.changes])
    # The snapshot has the last change of each key that compact has trimmed since.
    snapshot, changelog = pinned_versions(run.tables, None, None)
    versions = row_versions(run.tables, snapshot_version=snapshot, changelog_version=changelog)
    since = versions.where(F.col("batch_id") > (-1 if pinned is None else pinned.metadata["batch_id"]))
    expired = rows.withColumnRenamed("key", of.key).withColumn(CAUSE, F.lit(_CAUSE))
    left = expired.join(since.select(of.key), of.key, "left_anti").persist()
    try:
        send_tombstones(config, topic, left)
        return left.count()
    finally:
        left.unpersist()


def _appended(run: JobRun) -> tuple[bool, int]:
    """Return whether the appends since the run began are all its own, and how many are."""
    commits = run.tables[schemas.CORRECTIONS].commits(run.pinned[schemas.CORRECTIONS])
    runs = [c.metadata["run_id"] for c in commits if c.metadata.get("job") == JOB]
    return set(runs) <= {run.run_id}, runs.count(run.run_id)
