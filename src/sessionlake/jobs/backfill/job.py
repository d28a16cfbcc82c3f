"""The backfill as a job: pin, compare, append `replace` corrections for the differences."""

import json
from collections import Counter
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.engine.raised import raised
from sessionlake.errors import SourceError
from sessionlake.jobs.backfill.events import Window
from sessionlake.jobs.backfill.ledger import forgotten_keys
from sessionlake.jobs.backfill.plan import STATS, Basis, compared, first_window
from sessionlake.jobs.late.ledger import append_claimed, claim, next_number, runs_before
from sessionlake.jobs.late.spans import BACKFILL, NUMBER, Span, check_range
from sessionlake.jobs.run import JobReport, JobRun, OnStep, start_run
from sessionlake.operators.sessions.setup import build_spec, check_settings
from sessionlake.sources.files import NEEDED
from sessionlake.stream.input_log import batch_inputs
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
    """Compute the sessions that have a time in [from_us, to_us) from the events again; append corrections where they differ.

    The sessions change with the sessionizer's next batch. Raises OvertakenError where another run overtook this one,
    SourceError where events that the stream read are gone.
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
        return run.finish(counts, _notes(counts))
    with run.step("reading events again"):
        rows, counts = _differences(_basis(spark, config, run), run)
    try:
        with run.step("appending corrections", schemas.CORRECTIONS):
            append_claimed(run, schemas.CORRECTIONS, _corrections(run, rows.where(F.col(STATS).isNull())))
    finally:
        rows.unpersist()
    return run.finish(counts, _notes(counts))


def _pin(config: Config, from_us: int, to_us: int, tables: Tables) -> dict[str, Any]:
    # The snapshot before the changelog: so what it lacks is in the changelog.
    snapshot = tables.latest_version(schemas.SESSIONS)
    last = last_batch(tables)
    check_settings(config, last)
    return {
        "batch_id": last.batch_id,
        "from_us": from_us,
        "to_us": to_us,
        # Late events of any age are taken in: replacements reach below the horizon.
        "expired_us": from_us,
        NUMBER: next_number(tables),
        "changelog_version": last.version,
        "snapshot_version": snapshot,
    }


def _basis(spark: SparkSession, config: Config, run: JobRun) -> Basis:
    tables, pinned = run.tables, run.pinned
    last = last_batch(tables)
    check_settings(config, last)
    inputs = batch_inputs(tables, config, pinned["batch_id"])
    return Basis(
        tables=tables,
        config=config,
        spec=build_spec(spark, config, last.settings.types),
        inputs=inputs,
        runs=runs_before(run) if run.dry_run else claim(run),
        asked=Span(pinned["batch_id"], pinned["from_us"], pinned["to_us"]),
        snapshot_version=pinned["snapshot_version"],
        changelog_version=pinned["changelog_version"],
        forgotten=forgotten_keys(tables, inputs),
    )


def _differences(basis: Basis, run: JobRun) -> tuple[DataFrame, dict[str, int]]:
    """Return the comparison's rows, persisted, and counts; reads a wider window until no chain of events crosses its edges."""
    window, stored = first_window(basis)
    for step in range(64):
        rows, batches = compared(basis, window, stored)
        rows = rows.persist()
        counts = _counts(rows)
        low, high = counts.pop("open_low", 0), counts.pop("open_high", 0)
        if not low and not high:
            counts["batches_read"] = len(batches)
            return rows, counts
        rows.unpersist()
        run.on_step("reading more: sessions cross the edges of what was read")
        more = (window.high - window.low + basis.spec.windows.widest_us) << step
        window = Window(window.low - more if low else window.low, window.high + more if high else window.high)
    raise AssertionError("a window of all times has no open edge")


def _counts(rows: DataFrame) -> dict[str, int]:
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
    names = ("sessions", "unchanged", "corrections", "removed", "put", "late_included", "withheld")
    return {name: total[name] for name in names} | {k: total[k] for k in ("open_low", "open_high")}


def _corrections(run: JobRun, found: DataFrame) -> DataFrame:
    identity = F.md5(F.concat_ws("\x00", F.col("group_start").cast("string"), F.col("session_key")))
    correction_id = F.concat(F.lit(f"{run.app_id}/"), identity)
    return run.corrections(
        found.select("session_key", "group_start", "remove", "put"), correction_id=correction_id, kind=F.lit("replace")
    )


def _written(run: JobRun) -> dict[str, int]:
    """Return what an earlier attempt has written; what else it counted is not known any more."""
    ours = run.tables.read(schemas.CORRECTIONS).where((F.col("job") == run.job) & (F.col("run_id") == run.run_id))
    sizes = [F.coalesce(F.sum(F.size(name)), F.lit(0)) for name in ("remove", "put")]
    return dict(zip(("corrections", "removed", "put"), ours.agg(F.count("*"), *sizes).collect()[0], strict=True))


def _notes(counts: dict[str, int]) -> list[str]:
    if not counts["corrections"]:
        return ["the sessions are what the events say"]
    return [
        "corrections take effect with the sessionizer's next batch; one whose sessions changed meanwhile is stale and ignored, a second run repairs it"
    ]
