"""The compaction job: fold, trim, optimize, vacuum; each step takes effect once a run, however often it is started."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.times import format_time
from sessionlake.errors import JobError
from sessionlake.jobs.compact import fold, layout, retention, trim
from sessionlake.jobs.compact.plan import MB
from sessionlake.jobs.compact.upkeep import OF_BATCHES, OF_RUNS, Upkeep, total
from sessionlake.jobs.run import JobReport, OnStep, start_run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables

JOB = "compact"
METHODS = (fold.AUTO, fold.MERGE, fold.REWRITE)
_TABLES = (schemas.SESSIONS, schemas.CHANGELOG)
_SIDE_TABLES = (*schemas.SIDES, *OF_BATCHES, *OF_RUNS)
"""What the stream and jobs append to besides the changelog. Not corrections: it is an input, whose files say who has read them."""


def compact(
    spark: SparkSession,
    config: Config,
    *,
    method: str = fold.AUTO,
    run_id: str | None = None,
    dry_run: bool = False,
    on_step: OnStep = lambda _: None,
) -> JobReport:
    """Fold the changelog as of the run's start into the snapshot, trim it, and put the files of all tables that the stream writes in order.

    What sessions_live shows stays the same throughout; a stream and other jobs may run beside it.
    """
    if method not in METHODS:
        raise JobError(f"--method: {method!r} is unknown; write {', '.join(METHODS)}")
    arguments = {"method": method}
    run = start_run(spark, config, JOB, run_id=run_id, arguments=arguments, pin=_pin, dry_run=dry_run, on_step=on_step)
    if run.finished is not None:
        return run.finished
    upkeep = Upkeep(spark, config, run)
    if dry_run:
        return _plan(upkeep, config, method)
    for name, step in _steps(upkeep, config, method).items():
        with run.step(name.replace("_", " "), name):
            step()
    return _report(upkeep)


def _pin(tables: Tables) -> dict[str, Any]:
    """Return the last batch, and the tables' versions, files and bytes as the run finds them."""
    pinned: dict[str, Any] = {"batch_id": last_batch(tables).batch_id}
    for table in (*_TABLES, *_side_tables(tables)):
        pinned[f"{table}_version"] = tables.latest_version(table)
    for table in _TABLES:
        pinned[f"{table}_files"], pinned[f"{table}_bytes"] = layout.size(tables, table)
    return pinned


def _side_tables(tables: Tables) -> list[str]:
    return [name for name in _SIDE_TABLES if tables.exists(name)]


def _steps(upkeep: Upkeep, config: Config, method: str) -> dict[str, Callable[[], None]]:
    """Return the steps in their order: trim before optimize, which would else put together what is about to go."""
    tables, run = upkeep.tables, upkeep.run

    def trimmed() -> None:
        point = trim.trim_point(tables, config, run.started_us)
        if point is not None:
            trim.trim(upkeep, point)

    def once(table: str, step: str, action: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if upkeep.done(table, step) else action()

    def optimized(table: str) -> None:
        if table == schemas.SESSIONS:
            layout.optimize_sessions(upkeep, config)
        else:
            layout.optimize_appended(upkeep, config, table)

    def vacuumed(table: str) -> None:
        # Files that an optimize takes out of a side table go with a later one's vacuum: most runs need not look.
        rewriting = (layout.STEP_OPTIMIZE, trim.STEP, retention.STEP)
        if table in _TABLES or any(upkeep.done(table, step) for step in rewriting):
            layout.vacuum(upkeep, config, table)

    every = [*_TABLES, *(name for name in _side_tables(tables) if f"{name}_version" in run.pinned)]
    return {
        **(
            {"layout": partial(layout.take_partitions_away, upkeep, config)}
            if tables.partitioned_by(schemas.SESSIONS)
            else {}
        ),
        "fold": partial(fold.fold, upkeep, run.pinned["batch_id"], method, config.compact.file_mb * MB),
        "trim": once(schemas.CHANGELOG, trim.STEP, trimmed),
        **({"trim_archive": partial(trim.trim_archive, upkeep, config)} if schemas.EVENTS in every else {}),
        **retention.steps(upkeep, config),
        **{f"optimize_{t}": once(t, layout.STEP_OPTIMIZE, partial(optimized, t)) for t in every},
        **{f"vacuum_{t}": partial(vacuumed, t) for t in every},
    }


def _report(upkeep: Upkeep) -> JobReport:
    """Record and return what all attempts of the run did, as the tables' logs have it."""
    run, tables = upkeep.run, upkeep.tables
    folds = upkeep.done(schemas.SESSIONS, fold.STEP)
    folded = folds[0] if folds else {}
    trims = upkeep.done(schemas.CHANGELOG, trim.STEP)
    optimized = upkeep.done(schemas.SESSIONS, layout.STEP_OPTIMIZE)
    written = total(folds, "numTargetRowsUpdated", "numTargetRowsInserted", "numTargetRowsCopied")
    if folded.get("method") == fold.REWRITE:
        written = folded.get("rows_written", 0)
    counts = {
        "rows_folded": folded.get("folded", 0),
        "sessions_upserted": folded.get("upserts", 0),
        "sessions_deleted": folded.get("deletes", 0),
        "rows_rewritten": written,
        "rows_trimmed": total(trims, "numDeletedRows"),
        "rows_copied_by_trim": total(trims, "numCopiedRows"),
        "files_trimmed": total(trims, "numRemovedFiles"),
        "sessions_files_optimized": sum(commit.get("files_removed", 0) for commit in optimized),
        "changelog_files_optimized": total(upkeep.done(schemas.CHANGELOG, layout.STEP_OPTIMIZE), "numRemovedFiles"),
    }
    if f"{schemas.EVENTS}_version" in run.pinned:
        counts["events_trimmed"] = total(upkeep.done(schemas.EVENTS, trim.STEP), "numDeletedRows")
    for table in _TABLES:
        counts[f"{table}_files_vacuumed"] = total(upkeep.done(table, layout.STEP_VACUUM), "numDeletedFiles")
        files, size = layout.size(tables, table)
        counts |= {
            f"{table}_files_before": run.pinned[f"{table}_files"],
            f"{table}_files_after": files,
            f"{table}_bytes_before": run.pinned[f"{table}_bytes"],
            f"{table}_bytes_after": size,
        }
    notes = [f"folded up to batch {run.pinned['batch_id']}" + _how(folded.get("method"), written, counts)]
    return run.finish(counts, notes)


def _how(method: str | None, written: int, counts: dict[str, int]) -> str:
    changed = counts["sessions_upserted"] + counts["sessions_deleted"]
    if not method or not changed:
        return ": nothing was new" if not method else ": no session had changed"
    return f" by {method}: {written / changed:.2f} rows written a session changed"


def _plan(upkeep: Upkeep, config: Config, method: str) -> JobReport:
    """Return what the run would do; of its later steps as far as they don't hang on the earlier ones."""
    run, tables = upkeep.run, upkeep.tables
    tail = fold.read_tail(upkeep, run.pinned["batch_id"])
    point = trim.trim_point(tables, config, run.started_us)
    changelog = tables.read(schemas.CHANGELOG)
    counts = {
        "rows_folded": tail.rows,
        "sessions_upserted": tail.upserts,
        "sessions_deleted": tail.deletes,
        "rows_trimmed": 0 if point is None else changelog.where(F.col("batch_id") <= point).count(),
        "sessions_files_to_optimize": len(layout.ragged_files(tables, config)),
        "changelog_small_files": layout.small_files(tables, config, schemas.CHANGELOG),
        **{f"{t}_{what}_before": run.pinned[f"{t}_{what}"] for t in _TABLES for what in ("files", "bytes")},
    }
    tail.release()
    fold_note = (
        f"would fold up to batch {tail.until} by {tail.method(method)}: {tail.changed:,} sessions changed "
        f"in {len(tail.files)} files that hold {tail.stored:,}"
    )
    notes = [fold_note, "would trim nothing" if point is None else f"would trim the changelog up to batch {point}"]
    if (archived := trim.archive_point(tables, config)) is not None:
        counts["events_trimmed"] = tables.read(schemas.EVENTS).where(trim.older_events(archived)).count()
        notes.append(f"would trim the archive before {format_time(archived)}")
    return run.finish(counts, notes)
