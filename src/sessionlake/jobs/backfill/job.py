"""The backfill as a job: pin, compare, append `replace` corrections for the differences."""

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.operators import named
from sessionlake.config.times import format_time
from sessionlake.engine.error_text import error_in
from sessionlake.errors import NotNeededError, SourceError
from sessionlake.jobs.again.restate import stored_kind
from sessionlake.jobs.again.runs import NUMBER
from sessionlake.jobs.backfill.ledger import applied_corrections, forgotten_keys, taken_corrections
from sessionlake.jobs.backfill.plan import STATS, RunBasis, compared
from sessionlake.jobs.late.ledger import CLAIMS
from sessionlake.jobs.late.spans import BACKFILL, Span, check_range
from sessionlake.jobs.run import JobReport, JobRun, OnStep, digest, start_run
from sessionlake.sources.files import NEEDED
from sessionlake.stream.changes import check_changes
from sessionlake.stream.input_log import batch_inputs
from sessionlake.stream.kinds import kind_of
from sessionlake.stream.recompute import Recompute
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
    """Compute the results with a time in [from_us, to_us) from the events again; append corrections if they differ.

    For windows these are their slices. The results change with the next batch.

    Raises OvertakenError if another run overtook this one, and SourceError if events that the stream has read are gone.
    Raises NotNeededError if windows share slices or are counted, and the whole range is beyond their retention.
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
        recompute = _recompute(spark, basis)
        rows, counts = _differences(basis, recompute, run)
    try:
        with run.step("appending corrections", schemas.CORRECTIONS):
            CLAIMS.append(run, schemas.CORRECTIONS, _corrections(run, recompute, rows.where(F.col(STATS).isNull())))
    finally:
        rows.unpersist()
    return run.finish(counts, _notes(run, from_us, counts, [recompute.right]))


def _pin(config: Config, from_us: int, to_us: int, tables: Tables) -> dict[str, Any]:
    # The snapshots first: a row that has left the changelog is then in the snapshot, and none is missing in both.
    kind, own = kind_of(config), tables.changelog
    state = kind.changelogs_in(config)[0]
    snapshots = {of.snapshot: tables[of.snapshot].latest_version() for of in (state, own)}
    last = last_batch(tables)
    check_changes(config, last, kind.bound_settings())
    kept_us = _recompute_class(config).earliest(config, tables, last, from_us)
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
        NUMBER: CLAIMS.next_number(tables),
        "changelog_version": last.version,
        "snapshot_version": snapshots[own.snapshot],
    }


def _basis(config: Config, run: JobRun) -> RunBasis:
    tables, pinned = run.tables, run.pinned
    inputs = batch_inputs(tables, config, pinned["batch_id"])
    CLAIMS.claim(run)
    runs = CLAIMS.before(run)
    taken = taken_corrections(tables, inputs)
    return RunBasis(
        tables=tables,
        config=config,
        inputs=inputs,
        from_us=pinned["from_us"],
        to_us=pinned["to_us"],
        pinned=pinned,
        applied=applied_corrections(tables, taken, inputs[-1].batch_id),
        forgotten=forgotten_keys(tables, inputs),
        asked=Span(pinned["batch_id"], pinned["from_us"], pinned["to_us"]),
        runs=runs,
        taken=taken,
    )


def _recompute(spark: SparkSession, basis: RunBasis) -> Recompute:
    kind = stored_kind(spark, basis.config, last_batch(basis.tables))
    return _recompute_class(basis.config)(kind, basis)


def _recompute_class(config: Config) -> type[Recompute]:
    """Return the operator's capability; `require_known` has refused operators without it."""
    found: type[Recompute] = named(config.entry.recompute or "")
    return found


def _differences(basis: RunBasis, recompute: Recompute, run: JobRun) -> tuple[DataFrame, dict[str, int]]:
    """Return the comparison's rows, persisted, and counts; reads a wider window until no chain of events crosses its edges."""
    window, stored = recompute.first()
    for step in range(64):
        rows, batches = compared(basis, recompute, window, stored)
        rows = rows.persist()
        counts = _counts(rows, recompute.counts)
        low, high = counts.pop("open_low", 0), counts.pop("open_high", 0)
        if not low and not high:
            counts["batches_read"] = len(batches)
            return rows, counts
        rows.unpersist()
        run.on_step("reading more: sessions cross the edges of the range")
        window = recompute.wider(window, step, low=bool(low), high=bool(high))
    raise AssertionError("a window of all times has no open edge")


def _counts(rows: DataFrame, names: Sequence[str]) -> dict[str, int]:
    """Add up the counts of the buckets, a few numbers each. If that fails the rows are no longer persisted."""
    total: Counter[str] = Counter()
    try:
        for row in rows.where(F.col(STATS).isNotNull()).select(STATS).collect():
            total.update(json.loads(row[0]))
    except Exception as error:
        rows.unpersist()
        ours = error_in(str(error))
        if ours is None:
            raise
        raise (SourceError(f"{ours}; {NEEDED}") if isinstance(ours, SourceError) else ours) from error
    return {name: total[name] for name in names} | {k: total[k] for k in ("open_low", "open_high")}


def _corrections(run: JobRun, recompute: Recompute, found: DataFrame) -> DataFrame:
    identity = digest(F.col("group_start").cast("string"), F.col("key"))
    correction_id = F.concat(F.lit(f"{run.app_id}/"), identity)
    return run.corrections(
        found.drop(STATS), recompute.events.layouts, correction_id=correction_id, kind=F.lit("replace")
    )


def _written(run: JobRun) -> dict[str, int]:
    """Return the counts that an earlier attempt has written; its other counts are lost."""
    ours = run.tables[schemas.CORRECTIONS].read().where((F.col("job") == run.job) & (F.col("run_id") == run.run_id))
    # In place of a revision a negative number says that a row belongs to windows, and not to a removal.
    named = F.filter("remove", lambda item: item["revision"] >= 0), F.col("put")
    sizes = [F.coalesce(F.sum(F.size(items)), F.lit(0)) for items in named]
    return dict(zip(("corrections", "removed", "put"), ours.agg(F.count("*"), *sizes).collect()[0], strict=True))


def _notes(run: JobRun, from_us: int, counts: dict[str, int], right: list[str]) -> list[str]:
    """Return the run's lines for people: that a range was cut, when the corrections take effect, or that nothing differs."""
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
    "for earlier ones use `sessionlake rebuild`"
)
