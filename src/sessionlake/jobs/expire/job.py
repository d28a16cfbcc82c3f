"""Pattern 7: a job apart from the stream reads the changelog to its end and sends tombstones for what has expired."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.config import Config
from sessionlake.durations import parse_duration
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError, FencedError, first_line
from sessionlake.jobs.expire.rule import Rule, wrong_sql
from sessionlake.jobs.expire.topic import require_topic, send_tombstones
from sessionlake.jobs.runs import JobReport, JobRun, OnStep, start_run
from sessionlake.jobs.tombstones import IDENTITY, emitted_tombstones, tombstones
from sessionlake.tables import Tables
from sessionlake.views import merged_sessions

JOB = "expire"
INTERVAL_S = 10
"""Seconds between two appends: a stream's trigger is of this order, and a commit costs the same for 10 or 100,000 rows."""


@dataclass
class Pace:
    """Let appends begin no sooner than the interval after the one before."""

    interval_s: float = INTERVAL_S
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _last: float | None = field(default=None, init=False)

    def wait(self) -> None:
        """Return when the next append may begin."""
        if self._last is not None:
            self.sleep(max(0.0, self._last + self.interval_s - self.clock()))
        self._last = self.clock()


@dataclass(frozen=True)
class Plan:
    """The tombstones of a run: ranked sessions, of which rank < total are emitted, oldest end first."""

    ranked: DataFrame
    counts: dict[str, int]
    total: int
    chunk: int

    @property
    def steps(self) -> int:
        """How many appends the run makes."""
        return -(-self.total // self.chunk)

    def sent(self, steps: int) -> int:
        """Return how many tombstones the first appends hold."""
        return min(self.total, steps * self.chunk)

    def progress(self, steps: int) -> str:
        """Say so."""
        return f"{self.sent(steps):,} of {self.total:,} tombstones"

    def rows(self, step: int) -> DataFrame:
        """Return the sessions of one append; the same ones in every attempt."""
        rank = F.col("rank")
        return self.ranked.where((rank >= step * self.chunk) & (rank < self.sent(step + 1)))


def expire(
    spark: SparkSession,
    config: Config,
    *,
    where: str | None = None,
    ttl: str | None = None,
    tables: Mapping[str, str] | None = None,
    max_per_run: int | None = None,
    max_per_second: int | None = None,
    run_id: str | None = None,
    dry_run: bool = False,
    pace: Pace | None = None,
    on_step: OnStep = lambda _: None,
    to_topic: bool = False,
) -> JobReport:
    """Append a tombstone for each expired session that has none yet at its revision; the rule given here replaces the config's.

    No session gets two tombstones at one revision, whatever runs beside or after each other: appends of all runs are
    one sequence (Delta's txnVersion), and a run that finds another's append after what it had pinned stops there.
    With `to_topic` tombstones go to the source's topic instead, where none of this holds: a repeated one is stale.
    """
    if to_topic:
        require_topic(spark, config)
    rule = Rule(*_rule(config, where, ttl))
    named = {**config.expire.tables, **{name: _absolute(path) for name, path in (tables or {}).items()}}
    limit = max_per_run or config.expire.max_per_run
    rate = max_per_second or config.expire.max_tombstones_per_second
    run = start_run(
        spark,
        config,
        JOB,
        run_id=run_id,
        arguments={
            **asdict(rule),
            "tables": named,
            "max_per_run": limit,
            "max_per_second": rate,
            **({"to_topic": True} if to_topic else {}),
        },
        pin=lambda lake: _pin(lake, spark, named),
        dry_run=dry_run,
    )
    if run.finished is not None:
        return run.finished
    with _views(spark, named, run.pinned["tables"]):
        pace = pace or Pace()
        plan = _plan(run, rule, limit, max(1, int(rate * pace.interval_s)))
        try:
            done, alone = _send(config, run, plan, pace, on_step) if to_topic else _emit(run, plan, pace, on_step)
        finally:
            plan.ranked.unpersist()
    counts = {
        **plan.counts,
        "expired": done,
        "left_for_next_run": plan.counts["matched"] - plan.counts["emitted_before"] - done,
    }
    return run.finish(counts, [] if alone else ["another run of expire emitted tombstones meanwhile; this one stopped"])


def _rule(config: Config, where: str | None, ttl: str | None) -> tuple[int | None, str | None]:
    if where is None and ttl is None:
        where, ttl = config.expire.where, config.expire.ttl
    return None if ttl is None else parse_duration(ttl, "ttl"), where


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).resolve())


def _pin(lake: Tables, spark: SparkSession, named: Mapping[str, str]) -> dict[str, Any]:
    # In this order: what the sequence has counted is in the version of corrections, and what is trimmed from the
    # changelog is in the version of the snapshot.
    sequence = lake.app_version(schemas.CORRECTIONS, JOB)
    names = (schemas.CORRECTIONS, schemas.CHANGELOG, schemas.SESSIONS)
    return {
        "sequence": -1 if sequence is None else sequence,
        **{name: lake.latest_version(name) for name in names},
        "tables": {name: _version(spark, name, path) for name, path in named.items()},
    }


def _version(spark: SparkSession, name: str, path: str) -> int:
    folder, _, table = path.rstrip("/").rpartition("/")
    version = Tables(spark, folder).latest_version(table)
    if version < 0:
        raise ConfigError(f"expire.tables.{name}: {path!r} is no Delta table; correct the path")
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


def _plan(run: JobRun, rule: Rule, max_per_run: int | None, chunk: int) -> Plan:
    """Find what expires and rank it by (session_end, key, start), what has its tombstone already last."""
    pinned, lake = run.pinned, run.tables
    sessions = merged_sessions(
        lake, snapshot_version=pinned[schemas.SESSIONS], changelog_version=pinned[schemas.CHANGELOG]
    )
    before = emitted_tombstones(lake.read(schemas.CORRECTIONS, pinned[schemas.CORRECTIONS]), JOB)
    matched = rule.matching(sessions, run.started_us).select(*IDENTITY, "session_end")
    # Kept, because a sort reads its input twice: the sessions would be read twice.
    marked = matched.join(before.withColumn("before", F.lit(True)), IDENTITY, "left").persist()
    ordered = marked.orderBy(F.col("before").isNotNull(), "session_end", "session_key", "session_start").withColumn(
        "place", F.monotonically_increasing_id()
    )
    ordered = ordered.persist()
    try:
        parts = _parts(ordered)
    except BaseException as error:
        ordered.unpersist()
        if isinstance(error, PySparkException):
            raise wrong_sql(error) from error
        raise
    finally:
        marked.unpersist()
    emitted_before = sum(old for _, _, old in parts)
    counts = {
        "rows_read": sum(lake.rows(name, pinned[name]) for name in (schemas.SESSIONS, schemas.CHANGELOG)),
        "matched": sum(rows for _, rows, _ in parts),
        "emitted_before": emitted_before,
    }
    new = counts["matched"] - emitted_before
    total = new if max_per_run is None else min(new, max_per_run)
    return Plan(ordered.withColumn("rank", _rank(parts)), counts, total, chunk)


def _parts(ordered: DataFrame) -> list[tuple[int, int, int]]:
    """Return (number, rows, rows that have their tombstone) of each partition of the ordered sessions."""
    rows = ordered.groupBy(_part().alias("part")).agg(F.count(F.lit(1)), F.count("before")).orderBy("part").collect()
    return [(row[0], row[1], row[2]) for row in rows]


def _part() -> Column:
    return F.shiftright("place", 33).cast("int")


def _rank(parts: list[tuple[int, int, int]]) -> Column:
    """Return a row's number in the whole order: its place in the partition and the rows of those before."""
    below, at = [0] * (parts[-1][0] + 1 if parts else 1), 0
    for number, rows, _ in parts:
        below[number], at = at, at + rows
    place = F.col("place").bitwiseAND(F.lit((1 << 33) - 1))
    return place + F.element_at(F.lit(below).cast("array<bigint>"), _part() + 1)


def _emit(run: JobRun, plan: Plan, pace: Pace, on_step: OnStep) -> tuple[int, bool]:
    """Append what earlier attempts have not; return tombstones of the run, and False where another run came between."""
    if run.dry_run:
        return plan.total, True
    alone, steps = _appended(run)
    while alone and steps < plan.steps:
        pace.wait()
        failpoints.hit("expire_before_append")
        rows = tombstones(run, plan.rows(steps)).coalesce(1)
        metadata = {"job": JOB, "run_id": run.run_id, "step": steps}
        try:
            run.tables.append(schemas.CORRECTIONS, rows, JOB, run.pinned["sequence"] + 1 + steps, metadata)
        except FencedError:
            alone = False
        failpoints.hit("expire_after_append")
        # An append under a number that another run has used is skipped without an error.
        _, steps = appended = _appended(run)
        alone = alone and appended[0]
        on_step(plan.progress(steps))
    return plan.sent(steps), alone


def _send(config: Config, run: JobRun, plan: Plan, pace: Pace, on_step: OnStep) -> tuple[int, bool]:
    """Send all tombstones of the run to the topic, in a retry again."""
    for step in range(0 if run.dry_run else plan.steps):
        pace.wait()
        send_tombstones(config, tombstones(run, plan.rows(step)))
        on_step(plan.progress(step + 1))
    return plan.total, True


def _appended(run: JobRun) -> tuple[bool, int]:
    """Return whether the appends since the run began are all its own, and how many are."""
    commits = run.tables.commits(schemas.CORRECTIONS, run.pinned[schemas.CORRECTIONS])
    runs = [c.metadata["run_id"] for c in commits if c.metadata.get("job") == JOB]
    return set(runs) <= {run.run_id}, runs.count(run.run_id)
