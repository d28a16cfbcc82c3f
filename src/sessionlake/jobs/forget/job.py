"""The right to erasure: all that is kept of some keys goes, from the stream's state to the last file, with a proof."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.config import Config
from sessionlake.durations import format_duration, parse_duration
from sessionlake.engine import failpoints
from sessionlake.errors import JobError
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.forget.files import erase_files
from sessionlake.jobs.forget.keys import Keys, matching
from sessionlake.jobs.forget.lake import Lake
from sessionlake.jobs.forget.logs import erase_in_logs
from sessionlake.jobs.forget.progress import in_flight
from sessionlake.jobs.forget.proof import Proof, prove
from sessionlake.jobs.forget.stores import erase_stores, store_if_free
from sessionlake.jobs.late_ledger import fence_runs
from sessionlake.jobs.runs import JobReport, JobRun, OnStep, start_run
from sessionlake.jobs.tombstones import IDENTITY, emitted_tombstones, tombstones
from sessionlake.tables import Tables
from sessionlake.views import ERASURES, FOLD, merged_sessions

JOB = "forget"
_PASSES = 5
_POLL_S = 2.0


@dataclass(frozen=True)
class Waiting:
    """How long to wait for a stream that runs, by which clock."""

    wait_us: int
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def forget(
    spark: SparkSession,
    config: Config,
    keys: Iterable[str],
    *,
    wait: str = "10 minutes",
    apply: bool = True,
    run_id: str | None = None,
    dry_run: bool = False,
    waiting: Waiting | None = None,
    on_step: OnStep = lambda _: None,
) -> JobReport:
    """Remove the keys' sessions through the stream, then their rows, files, traces in logs, and local stores; prove it.

    `apply` runs passes of the sessionizer where no stream runs on this machine. Every step finds for itself what is
    left to do, so that a killed run is repeated, with the same run id or another. Numbers are those of the last
    attempt; `found` is what the proof found. A run that found something is not finished: repeat it.
    """
    chosen = Keys.of(keys)
    run = start_run(
        spark,
        config,
        JOB,
        run_id=run_id,
        arguments={"keys": chosen.hashes},
        pin=lambda _: {},
        dry_run=dry_run,
    )
    if run.finished is not None:
        return run.finished
    lake = Lake(run.tables, config, chosen)
    if dry_run:
        proof = proof_of(lake, on_step)
        return run.finish({"sessions": _live(lake).count(), "found": proof.found}, proof.lines())
    counts = {"tombstones": _settle(lake, run, waiting or Waiting(parse_duration(wait, "wait")), on_step, apply=apply)}
    for name, rows in lake.counts().items():
        counts[f"rows_of_{name}"] = rows
        if rows:
            on_step(f"removing {rows:,} rows of {name}")
            lake.delete(name)
    on_step("keeping out what other jobs have read before")
    _keep_out(lake)
    with store_if_free(config) as alone:
        _erase_traces(lake, counts, on_step, alone=alone)
    proof = proof_of(lake, on_step)
    counts |= {"source_rows": proof.source_rows, "found": proof.found}
    if proof.found:
        return JobReport(JOB, run.run_id, counts, [*proof.lines(), _remedy(alone=alone)])
    return run.finish(counts, proof.lines())


def proof_of(lake: Lake, on_step: OnStep = lambda _: None) -> Proof:
    """Look for the keys wherever they can be; nothing is changed."""
    on_step("looking for the keys in tables, files, logs and stores")
    with store_if_free(lake.config) as alone:
        return prove(lake, alone=alone)


def _settle(lake: Lake, run: JobRun, waiting: Waiting, on_step: OnStep, *, apply: bool) -> int:
    """Have the stream drop the keys' sessions and read every correction that names one; return the tombstones sent.

    The first pass comes before the first look: a batch that a crash interrupted may hold the keys too. A session that
    stays though its tombstone was read is not the stream's any more, but a row that some job has brought back.
    """
    sent = passes = 0
    deadline = waiting.clock() + waiting.wait_us / 1e6
    while True:
        on_step("waiting for the stream")
        applied = apply and passes < _PASSES and apply_corrections(lake.tables.spark, lake.config)
        passes += applied
        new, unread = _send(lake, run), in_flight(lake).count()
        sent += new
        if not unread:
            return sent
        if passes == _PASSES or (not applied and waiting.clock() > deadline):
            raise JobError(
                f"forget: after {passes} passes and {format_duration(waiting.wait_us)} the stream has not read {unread} corrections of the keys, of which {new} are new; "
                f"see that the stream runs and that no producer sends the keys, then repeat with --run-id {run.run_id}"
            )
        if not applied:
            waiting.sleep(_POLL_S)


def _send(lake: Lake, run: JobRun) -> int:
    """Append tombstones for the sessions that have none of this job at their revision."""
    before = emitted_tombstones(lake.tables.read(schemas.CORRECTIONS), JOB)
    new = _live(lake).select(*IDENTITY).join(before, IDENTITY, "left_anti").persist()
    try:
        count = new.count()
        if count:
            failpoints.hit("forget_before_tombstones")
            run.append(schemas.CORRECTIONS, tombstones(run, new).coalesce(1), run.steps_done(schemas.CORRECTIONS))
            failpoints.hit("forget_after_tombstones")
    finally:
        new.unpersist()
    return count


def _live(lake: Lake) -> DataFrame:
    def of_keys(rows: DataFrame) -> DataFrame:
        return matching(rows.alias("t"), lake.frame, F.expr("t.session_key = k.key"))

    return merged_sessions(lake.tables, narrowed=of_keys)


def _keep_out(lake: Lake) -> None:
    """Keep jobs that read rows of the keys before they were removed from writing them after it.

    A fold that commits before this may have brought rows back; one that would commit later fails, and reads again.
    """
    fence_runs(lake.tables)
    lake.tables.set_app_versions(schemas.SESSIONS, {FOLD: lambda reached: reached, ERASURES: lambda count: count + 1})
    failpoints.hit("forget_kept_out")
    lake.delete(schemas.SESSIONS)


def _erase_traces(lake: Lake, counts: dict[str, int], on_step: OnStep, *, alone: bool) -> None:
    on_step("removing files")
    erased = erase_files(lake, alone=alone)
    counts["files"] = sum(erased.values())
    for name in (name for name, files in erased.items() if files):
        lake.change(name, f"vacuum {lake.tables.sql_name(name)}")
    on_step("removing traces in logs")
    counts["log_files"] = erase_in_logs(lake, alone=alone)
    on_step("removing local stores")
    counts["stores"], counts["stores_marked"] = erase_stores(lake.config, lake.keys, alone=alone)


def _remedy(*, alone: bool) -> str:
    if alone:
        return "repeat the run; where rows came back, a producer or a job still sends the keys"
    return "a stream runs: it restores its marked stores with its next batches; repeat the run then, or with the stream stopped"


def check(spark: SparkSession, config: Config, keys: Iterable[str], on_step: OnStep = lambda _: None) -> Proof:
    """Return the proof alone, without a run."""
    return proof_of(Lake(Tables(spark, config.pipeline.warehouse), config, Keys.of(keys)), on_step)
