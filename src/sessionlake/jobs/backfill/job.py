"""The backfill as a job: pin, compare, append `replace` corrections for the differences."""

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.times import format_time
from sessionlake.engine.raised import raised
from sessionlake.errors import NotNeededError, SourceError
from sessionlake.jobs.backfill.ledger import forgotten_keys
from sessionlake.jobs.backfill.plan import STATS, compared
from sessionlake.jobs.backfill.sessions import SessionsAgain
from sessionlake.jobs.backfill.way import Basis, Way
from sessionlake.jobs.backfill.windows import WindowsAgain, kept_from
from sessionlake.jobs.by_time import kind_by_time
from sessionlake.jobs.late.ledger import append_claimed, claim, next_number, runs_before
from sessionlake.jobs.late.spans import BACKFILL, NUMBER, Span, check_range
from sessionlake.jobs.run import JobReport, JobRun, OnStep, start_run
from sessionlake.operators.registry import kind_of
from sessionlake.operators.sessions.kind import Sessions
from sessionlake.sources.files import NEEDED
from sessionlake.stream.input_log import batch_inputs
from sessionlake.stream.settings import check_settings
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables


def backfill(
    spark: SparkSession,
    config: Config,
    *,
    from_us: int,
    to_us: int,
    run_id: str | None = None,
    dry_run: bool = False,
    on_step: OnStep = lambda _: None,
) -> JobReport:
    """Compute what has a time in [from_us, to_us) from the events again; append corrections where it differs.

    That are sessions, or the slices of windows. They change with the next batch. Raises OvertakenError where another run
    overtook this one, SourceError where events that the stream read are gone, NotNeededError where all of the range is beyond the retention of
    windows that share slices or go by number.
    """
    check_range(from_us, to_us)
    arguments = {"from": from_us, "to": to_us}
    pin = partial(_pin, config, from_us, to_us)
    run = start_run(
        spark, config, BACKFILL, run_id=run_id, arguments=arguments, pin=pin, dry_run=dry_run, on_step=on_step
    )
    if run.finished is not None:
        return run.finished
    if run.steps_done(schemas.CORRECTIONS):
        counts = _written(run)
        return run.finish(counts, _notes(run, from_us, counts, []))
    run.expect(2)
    with run.step("reading events again"):
        basis = _basis(config, run)
        way = _way(spark, basis)
        rows, counts = _differences(basis, way, run)
    try:
        with run.step("appending corrections", schemas.CORRECTIONS):
            append_claimed(run, schemas.CORRECTIONS, _corrections(run, rows.where(F.col(STATS).isNull())))
    finally:
        rows.unpersist()
    return run.finish(counts, _notes(run, from_us, counts, [way.right]))


def _pin(config: Config, from_us: int, to_us: int, tables: Tables) -> dict[str, Any]:
    # The snapshots before the changelogs: so what they lack is in the changelogs.
    kind, own = kind_of(config), tables.changelog
    state = kind.changelogs_in(config)[0]
    snapshots = {of.snapshot: tables[of.snapshot].latest_version() for of in (state, own)}
    last = last_batch(tables)
    check_settings(config, last, kind.bound_settings())
    kept_us = kept_from(config, tables, last, from_us)
    if kept_us >= to_us:
        raise NotNeededError(f"--to: {format_time(to_us)} is {_BEYOND.format(format_time(kept_us))}")
    changes = {state.changes: tables[state.changes].latest_version(), own.changes: last.version}
    return {
        "state": dict(last.state),
        "versions": {**snapshots, **changes},
        "batch_id": last.batch_id,
        "from_us": kept_us,
        "to_us": to_us,
        # Late events of any age are taken in: replacements reach below the horizon.
        "expired_us": kept_us,
        NUMBER: next_number(tables),
        "changelog_version": last.version,
        "snapshot_version": snapshots[own.snapshot],
    }


def _basis(config: Config, run: JobRun) -> Basis:
    tables, pinned = run.tables, run.pinned
    inputs = batch_inputs(tables, config, pinned["batch_id"])
    return Basis(
        tables=tables,
        config=config,
        inputs=inputs,
        runs=runs_before(run) if run.dry_run else claim(run),
        asked=Span(pinned["batch_id"], pinned["from_us"], pinned["to_us"]),
        pinned=pinned,
        forgotten=forgotten_keys(tables, inputs),
    )


def _way(spark: SparkSession, basis: Basis) -> Way:
    kind = kind_by_time(spark, basis.config, last_batch(basis.tables))
    return (
        SessionsAgain(kind.spec, basis)
        if isinstance(kind, Sessions)
        else WindowsAgain(kind.spec, kind.changelogs[0], basis)
    )


def _differences(basis: Basis, way: Way, run: JobRun) -> tuple[DataFrame, dict[str, int]]:
    """Return the comparison's rows, persisted, and counts; reads a wider window until no chain of events crosses its edges."""
    window, stored = way.first()
    for step in range(64):
        rows, batches = compared(basis, way, window, stored)
        rows = rows.persist()
        counts = _counts(rows, way.counts)
        low, high = counts.pop("open_low", 0), counts.pop("open_high", 0)
        if not low and not high:
            counts["batches_read"] = len(batches)
            return rows, counts
        rows.unpersist()
        run.on_step("reading more: sessions cross the edges of what was read")
        window = way.wider(window, step, low=bool(low), high=bool(high))
    raise AssertionError("a window of all times has no open edge")


def _counts(rows: DataFrame, names: Sequence[str]) -> dict[str, int]:
    """Add up what the buckets counted: a few numbers each. Where that fails the rows are persisted no more."""
    total: Counter[str] = Counter()
    try:
        for row in rows.where(F.col(STATS).isNotNull()).select(STATS).collect():
            total.update(json.loads(row[0]))
    except Exception as error:
        rows.unpersist()
        ours = raised(str(error))
        if ours is None:
            raise
        raise (SourceError(f"{ours}; {NEEDED}") if isinstance(ours, SourceError) else ours) from error
    return {name: total[name] for name in names} | {k: total[k] for k in ("open_low", "open_high")}


def _corrections(run: JobRun, found: DataFrame) -> DataFrame:
    identity = F.md5(F.concat_ws("\x00", F.col("group_start").cast("string"), F.col("session_key")))
    correction_id = F.concat(F.lit(f"{run.app_id}/"), identity)
    return run.corrections(found.drop(STATS), correction_id=correction_id, kind=F.lit("replace"))


def _written(run: JobRun) -> dict[str, int]:
    """Return what an earlier attempt has written; what else it counted is not known any more."""
    ours = run.tables[schemas.CORRECTIONS].read().where((F.col("job") == run.job) & (F.col("run_id") == run.run_id))
    # In place of a revision a negative number tells windows from what is removed.
    named = F.filter("remove", lambda item: item["revision"] >= 0), F.col("put")
    sizes = [F.coalesce(F.sum(F.size(items)), F.lit(0)) for items in named]
    return dict(zip(("corrections", "removed", "put"), ours.agg(F.count("*"), *sizes).collect()[0], strict=True))


def _notes(run: JobRun, from_us: int, counts: dict[str, int], right: list[str]) -> list[str]:
    """Return what is to be said: of a range that was cut, and what becomes of corrections, or that nothing differs."""
    begins = run.pinned["from_us"]
    cut = [f"--from: {format_time(from_us)} is {_BEYOND.format(format_time(begins))}"] if begins > from_us else []
    if not counts["corrections"]:
        return cut + right
    return [
        *cut,
        "corrections take effect with the next batch; one whose rows changed meanwhile is stale and ignored, a second run repairs it",
    ]


_BEYOND = (
    "beyond retention, and windows that share slices or have a retention_count can be made whole only from {} on; "
    "for what lies before use `sessionlake rebuild`"
)
