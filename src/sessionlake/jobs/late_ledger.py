"""Which late events have been reprocessed: derived from what runs pinned and from their appends, never from a flag.

A run *covers* the late events of its batches and its times once its append is in the table that takes them: those in
retention when it started in corrections, the others in dead_letters. The two kinds of runs, reprocess_late and
backfill, take effect in the order in which they started: `claim` sees to it, and so a run leaves out exactly what the
runs before it cover. The order is a count that each run pins, one above all it sees: hosts' clocks may differ.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.errors import FencedError, JobError
from sessionlake.jobs.redeem_ledger import fence_redeems
from sessionlake.jobs.runs import JobRun, app_id
from sessionlake.tables import FENCED, Tables

REPROCESS_LATE, BACKFILL = "reprocess_late", "backfill"
WRITES = {REPROCESS_LATE: (schemas.CORRECTIONS, schemas.DEAD_LETTERS), BACKFILL: (schemas.CORRECTIONS,)}
"""The jobs that cover late events, and the tables whose appends make them do so."""
COVERED = "covered"
NUMBER = "number"
"""Under which a run pins its place in the order."""
_EVER = 1 << 62


@dataclass(frozen=True)
class Span:
    """Late events of batches up to one, inclusive, and of times from inclusive to exclusive."""

    batch_id: int
    from_us: int
    to_us: int

    def holds(self) -> Column:
        """Return the condition on a late event."""
        time = F.unix_micros("event_time")
        return (F.col("batch_id") <= self.batch_id) & (time >= self.from_us) & (time < self.to_us)

    def within(self, other: "Span") -> bool:
        """Say whether the other one holds all that this one does."""
        return self.batch_id <= other.batch_id and self.from_us >= other.from_us and self.to_us <= other.to_us


@dataclass(frozen=True)
class LateRun:
    """A run that covers late events, or once it has appended will."""

    job: str
    run_id: str
    number: int
    """Its place in the order of runs; of runs that started at once several may have the same."""
    asked: Span
    expired_us: int
    """What was older than this when the run started had fallen out of retention."""
    versions: dict[str, int | None]
    """By table: the version of its append, FENCED where it can't append any more, None where neither has happened."""

    @property
    def order(self) -> tuple[int, str, str]:
        """The order in which runs take effect."""
        return self.number, self.job, self.run_id

    @property
    def alive(self) -> bool:
        """It covers something, or still may."""
        return any(version != FENCED for version in self.versions.values())

    def covers(self) -> list[Span]:
        """Return what the run has covered."""
        asked = self.asked
        done = [self.versions[table] not in (None, FENCED) for table in WRITES[self.job]]
        if all(done):
            return [asked]
        kept = Span(asked.batch_id, max(asked.from_us, self.expired_us), asked.to_us)
        expired = Span(asked.batch_id, asked.from_us, min(asked.to_us, self.expired_us))
        return [span for span, is_done in zip((kept, expired), done, strict=False) if is_done]


def read_runs(tables: Tables) -> list[LateRun]:
    """Return all runs that cover late events or may, in their order."""
    if not tables.exists(schemas.JOB_RUNS):
        return []
    started = tables.read(schemas.JOB_RUNS).where(F.col("job").isin(*WRITES) & (F.col("event") == "started"))
    rows = started.select("job", "run_id", F.unix_micros("at").alias("at_us"), "pinned").collect()
    ids = [app_id(row.job, row.run_id) for row in rows]
    found = {table: tables.app_versions(table, ids) for table in WRITES[REPROCESS_LATE]}
    runs = []
    for row, id_ in zip(rows, ids, strict=True):
        pinned = json.loads(row.pinned)
        span = Span(pinned["batch_id"], *asked_times(pinned["from_us"], pinned["to_us"]))
        versions = {table: found[table].get(id_) for table in WRITES[row.job]}
        # Runs of releases that had no such number are ordered by their start, and come before all others.
        number = pinned.get(NUMBER, row.at_us)
        runs.append(LateRun(row.job, row.run_id, number, span, pinned["expired_us"], versions))
    return sorted(runs, key=lambda run: run.order)


def asked_times(from_us: int | None, to_us: int | None) -> tuple[int, int]:
    """Return a range of times, unbounded where None."""
    return (-_EVER if from_us is None else from_us), (_EVER if to_us is None else to_us)


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
    the earlier, and an earlier one that sees a later gives way. Raises JobError where this run has to.
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
            tables.fence(table, app_id(run.job, run.run_id))


def append_claimed(run: JobRun, table: str, rows: DataFrame) -> None:
    """Append a claimed run's rows once; JobError where another run has fenced this one."""
    try:
        run.append(table, rows)
    except FencedError:
        # Either a fence, or another attempt of this run that does the same: the table says which.
        if run.tables.app_version(table, run.app_id) is None:
            raise
    if not run.dry_run and run.tables.app_version(table, run.app_id) == FENCED:
        last = read_runs(run.tables)[-1]
        raise _overtaken(run, None if (last.job, last.run_id) == (run.job, run.run_id) else last)


def _overtaken(run: JobRun, by: LateRun | None) -> JobError:
    whom = "an erasure (`forget`)" if by is None else f"run {by.run_id!r} of {by.job}"
    return JobError(
        f"--run-id: {run.run_id!r} of {run.job} was overtaken by {whom}, started after it; "
        "what it had left waits for the next run, start that under a new id"
    )


def mark_covered(tables: Tables, late: DataFrame, runs: Iterable[LateRun], as_of: int) -> DataFrame:
    """Add to late events the column `covered`: by one of the runs, given in their order, as known at a batch.

    An event in a put of a replace correction that went stale is not covered by the backfill that wrote it, nor by runs
    that left it out because they could not know yet.
    """
    runs = list(runs)
    plain = _any(span.holds() for span in _widest(span for run in runs for span in run.covers()))
    stale = stale_puts(tables, runs, as_of)
    if not stale:
        return late.withColumn(COVERED, plain)
    marked, marks = with_stale_marks(late, stale)
    touched = _any(mark.isNotNull() for mark in marks.values())
    exact = _any(_knowing(runs, marks))
    return marked.withColumn(COVERED, F.when(touched, exact).otherwise(plain)).select(*late.columns, COVERED)


def with_stale_marks(
    late: DataFrame, stale: Mapping[tuple[str, str], DataFrame]
) -> tuple[DataFrame, dict[tuple[str, str], Column]]:
    """Join late events with `stale_puts`; return with them, by run, the column that has the batch which refused its put there."""
    time = F.unix_micros("event_time")
    for i, puts in enumerate(stale.values()):
        # Names of their own: the frames share one origin, so that Spark could not tell their columns apart.
        names = [f"{name}_{i}" for name in ("_key", "_from", "_to", "_stale_at")]
        # A backfill's puts of a key never overlap, so that no row comes twice.
        near = (F.col("session_key") == F.col(names[0])) & time.between(F.col(names[1]), F.col(names[2]))
        late = late.join(puts.toDF(*names), near, "left")
    return late, {run: F.col(f"_stale_at_{i}") for i, run in enumerate(stale)}


def _knowing(runs: list[LateRun], stale_at: dict[tuple[str, str], Column]) -> Iterator[Column]:
    """Yield what covers an event that lies in stale puts: not the backfill itself, nor who thought that it would hold."""
    before: list[Column] = []
    spans: list[list[Span]] = [[] for _ in range(len(stale_at) + 1)]
    for run in runs:
        mark = stale_at.get((run.job, run.run_id))
        if mark is None:
            spans[len(before)] += run.covers()
        else:
            yield _any(span.holds() for span in run.covers()) & mark.isNull()
            before.append(mark)
    for stale, covered in enumerate(spans):
        for span in _widest(covered):
            yield reduce(and_, (mark.isNull() | (mark <= span.batch_id) for mark in before[:stale]), span.holds())


def _widest(spans: Iterable[Span]) -> list[Span]:
    """Leave out spans that lie within others: of daily runs over everything one remains."""
    widest: list[Span] = []
    for span in sorted(spans, key=lambda s: (-s.batch_id, s.from_us, -s.to_us)):
        if not any(span.within(other) for other in widest):
            widest.append(span)
    return widest


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(or_, conditions, F.lit(False))


def stale_puts(tables: Tables, runs: list[LateRun], as_of: int) -> dict[tuple[str, str], DataFrame]:
    """Return, for each backfill with stale replacements, their puts: _key, _from, _to, and the batch that refused them."""
    backfills = [run for run in runs if run.job == BACKFILL and run.covers()]
    if not backfills:
        return {}
    dead = tables.read(schemas.DEAD_LETTERS).where("reason = 'stale' and kind = 'replace'")
    refused = dead.where(F.col("batch_id") <= as_of).select(
        F.col("source").alias("correction_id"), F.col("batch_id").alias("_stale_at")
    )
    written = tables.read(schemas.CORRECTIONS).where((F.col("job") == BACKFILL) & (F.col("kind") == "replace"))
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
