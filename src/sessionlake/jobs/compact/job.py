"""The compaction job: fold, trim, optimize, vacuum; each step takes effect once a run, however often it is started."""

from collections.abc import Callable, Iterable
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
from sessionlake.warehouse.batches import changelogs_in, last_batch
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.tables import Tables

JOB = "compact"
METHODS = (fold.AUTO, fold.MERGE, fold.REWRITE)
_SIDE_TABLES = (*schemas.SIDES, *OF_BATCHES, *OF_RUNS)
"""The tables to which the stream and jobs append, except the changelog and corrections. Streams read corrections file by file, so its files must stay as they are."""


def compact(
    spark: SparkSession,
    config: Config,
    *,
    method: str = fold.AUTO,
    run_id: str | None = None,
    dry_run: bool = False,
    on_step: OnStep = lambda _: None,
) -> JobReport:
    """Fold the changelog as of the run's start into the snapshot, trim it, and rewrite small files of all tables that the stream writes.

    The rows of the live view do not change. A stream and other jobs may run at the same time.
    """
    if method not in METHODS:
        raise JobError(f"--method: {method!r} is unknown; write {', '.join(METHODS)}")
    arguments = {"method": method}
    run = start_run(
        spark,
        config,
        JOB,
        run_id=run_id,
        arguments=arguments,
        pin=_pin,
        dry_run=dry_run,
        on_step=on_step,
    )
    if run.finished is not None:
        return run.finished
    upkeep = Upkeep(spark, config, run)
    if dry_run:
        return _plan(upkeep, config, method)
    steps = _steps(upkeep, config, method)
    run.expect(len(steps))
    for name, step in steps.items():
        with run.step(name.replace("_", " "), name):
            step()
    return _report(upkeep)


def _pin(tables: Tables) -> dict[str, Any]:
    """Return the last batch, and the tables' versions, files and bytes as the run finds them."""
    pinned: dict[str, Any] = {"batch_id": last_batch(tables).batch_id}
    folded = _folded_tables(changelogs_in(tables))
    for table in (*folded, *_side_tables(tables)):
        pinned[f"{table}_version"] = tables[table].latest_version()
    for table in folded:
        pinned[f"{table}_files"], pinned[f"{table}_bytes"] = layout.size(tables[table])
    return pinned


def _folded_tables(changelogs: Iterable[Changelog]) -> list[str]:
    return [name for of in changelogs for name in (of.snapshot, of.changes)]


def _side_tables(tables: Tables) -> list[str]:
    return [name for name in _SIDE_TABLES if tables[name].exists()]


def _steps(upkeep: Upkeep, config: Config, method: str) -> dict[str, Callable[[], None]]:
    """Return the steps in their order: trim comes before optimize, which would otherwise rewrite rows that are deleted next."""
    tables, run = upkeep.tables, upkeep.run
    first = upkeep.changelogs[0]
    each = {"" if of == first else f"_{of.snapshot}": upkeep.seen_by(of) for of in upkeep.changelogs}
    folded = _folded_tables(upkeep.changelogs)

    def trimmed(of: Upkeep, table: str) -> None:
        point = trim.trim_point(of.tables, config, run.started_us)
        if point is not None:
            trim.trim(of, table, point)

    def once(table: str, step: str, action: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if upkeep.done(table, step) else action()

    def optimized(table: str) -> None:
        of = next((of for of in upkeep.changelogs if of.snapshot == table), None)
        if of is not None:
            layout.optimize_snapshot(upkeep.seen_by(of), config)
        else:
            layout.optimize_appended(upkeep, config, table)

    def vacuumed(table: str) -> None:
        # Files that an optimize takes out of a side table go with a later one's vacuum: most runs need not look.
        rewriting = (layout.STEP_OPTIMIZE, trim.STEP, retention.STEP)
        if table in folded or any(upkeep.done(table, step) for step in rewriting):
            layout.vacuum(upkeep, config, table)

    batch_id, file_bytes = run.pinned["batch_id"], config.compact.file_mb * MB
    every = [*folded, *(name for name in _side_tables(tables) if f"{name}_version" in run.pinned)]
    return {
        **{f"fold{which}": partial(fold.fold, of, batch_id, method, file_bytes) for which, of in each.items()},
        **{
            f"trim{which}": once(
                of.tables.changelog.changes, trim.STEP, partial(trimmed, of, of.tables.changelog.changes)
            )
            for which, of in each.items()
        },
        **{
            f"trim_{table}": once(table, trim.STEP, partial(trimmed, upkeep, table))
            for table in (schemas.REPLACED_ROWS,)
            if table in every
        },
        **({"trim_archive": partial(trim.trim_archive, upkeep, config)} if schemas.EVENTS in every else {}),
        **{
            f"trim_{table}": once(table, trim.STEP, partial(upkeep.delete, table, trim.STEP, condition))
            for table, condition in trim.unneeded(tables, config).items()
        },
        **retention.steps(upkeep, config),
        **{f"optimize_{t}": once(t, layout.STEP_OPTIMIZE, partial(optimized, t)) for t in every},
        **{f"vacuum_{t}": partial(vacuumed, t) for t in every},
    }


def _report(upkeep: Upkeep) -> JobReport:
    """Record and return the results of all attempts of the run, read from the tables' logs."""
    run, of = upkeep.run, upkeep.changelogs[0]
    folded, written = _folded(upkeep, of)
    trims = upkeep.done(of.changes, trim.STEP)
    optimized = upkeep.done(of.snapshot, layout.STEP_OPTIMIZE)
    counts = {
        "rows_folded": folded.get("folded", 0),
        f"{of.snapshot}_upserted": folded.get("upserts", 0),
        f"{of.snapshot}_deleted": folded.get("deletes", 0),
        "rows_rewritten": written,
        "rows_trimmed": total(trims, "numDeletedRows"),
        "rows_copied_by_trim": total(trims, "numCopiedRows"),
        "files_trimmed": total(trims, "numRemovedFiles"),
        f"{of.snapshot}_files_optimized": sum(commit.get("files_removed", 0) for commit in optimized),
        "changelog_files_optimized": total(upkeep.done(of.changes, layout.STEP_OPTIMIZE), "numRemovedFiles"),
    }
    if f"{schemas.EVENTS}_version" in run.pinned:
        counts["events_trimmed"] = total(upkeep.done(schemas.EVENTS, trim.STEP), "numDeletedRows")
    if f"{schemas.JOIN_MESSAGES}_version" in run.pinned:
        counts["messages_trimmed"] = total(upkeep.done(schemas.JOIN_MESSAGES, trim.STEP), "numDeletedRows")
    if f"{schemas.REPLACED_ROWS}_version" in run.pinned:
        counts["replaced_rows_trimmed"] = total(upkeep.done(schemas.REPLACED_ROWS, trim.STEP), "numDeletedRows")
    if of.keeps_deletions:
        counts["deletions_trimmed"] = total(upkeep.done(of.snapshot, trim.STEP), "numDeletedRows")
    for other in upkeep.changelogs[1:]:
        details, _ = _folded(upkeep, other)
        counts |= {
            f"{other.snapshot}_upserted": details.get("upserts", 0),
            f"{other.snapshot}_deleted": details.get("deletes", 0),
            f"{other.changes}_rows_trimmed": total(upkeep.done(other.changes, trim.STEP), "numDeletedRows"),
        }
    for table in _folded_tables(upkeep.changelogs):
        counts[f"{table}_files_vacuumed"] = total(upkeep.done(table, layout.STEP_VACUUM), "numDeletedFiles")
        files, size = layout.size(upkeep.tables[table])
        counts |= {
            f"{table}_files_before": run.pinned[f"{table}_files"],
            f"{table}_files_after": files,
            f"{table}_bytes_before": run.pinned[f"{table}_bytes"],
            f"{table}_bytes_after": size,
        }
    changed = counts[f"{of.snapshot}_upserted"] + counts[f"{of.snapshot}_deleted"]
    how = _how(of, folded.get("method"), written, changed)
    return run.finish(counts, [f"folded up to batch {run.pinned['batch_id']}{how}"])


def _folded(upkeep: Upkeep, of: Changelog) -> tuple[dict[str, Any], int]:
    """Return the metadata of the run's fold of a changelog, empty if none was needed, and the number of rows that it wrote."""
    folds = upkeep.done(of.snapshot, fold.STEP)
    folded = folds[0] if folds else {}
    if folded.get("method") == fold.REWRITE:
        return folded, folded.get("rows_written", 0)
    return folded, total(folds, "numTargetRowsUpdated", "numTargetRowsInserted", "numTargetRowsCopied")


def _how(of: Changelog, method: str | None, written: int, changed: int) -> str:
    if not method or not changed:
        return ": nothing was new" if not method else f": no {of.name} had changed"
    return f" by {method}: {written / changed:.2f} rows written a {of.name} changed"


def _plan(upkeep: Upkeep, config: Config, method: str) -> JobReport:
    """Return what the run would do. Later steps are included only if they do not depend on earlier steps."""
    run, tables, of = upkeep.run, upkeep.tables, upkeep.changelogs[0]
    tail = fold.read_tail(upkeep, run.pinned["batch_id"])
    point = trim.trim_point(tables, config, run.started_us)
    changelog = tables[of.changes].read()
    counts = {
        "rows_folded": tail.rows,
        f"{of.snapshot}_upserted": tail.upserts,
        f"{of.snapshot}_deleted": tail.deletes,
        "rows_trimmed": 0 if point is None else changelog.where(F.col("batch_id") <= point).count(),
        f"{of.snapshot}_files_to_optimize": len(layout.ragged_files(tables, config)),
        "changelog_small_files": layout.small_files(tables[of.changes], config),
        **{
            f"{t}_{what}_before": run.pinned[f"{t}_{what}"]
            for t in _folded_tables(upkeep.changelogs)
            for what in ("files", "bytes")
        },
    }
    if point is not None and tables[schemas.REPLACED_ROWS].exists():
        replaced = tables[schemas.REPLACED_ROWS].read()
        counts["replaced_rows_trimmed"] = replaced.where(F.col("batch_id") <= point).count()
    for table, condition in trim.unneeded(tables, config).items():
        name = "deletions" if table == of.snapshot else table.removeprefix("join_")
        counts[f"{name}_trimmed"] = tables[table].read().where(condition).count()
    tail.release()
    fold_note = (
        f"would fold up to batch {tail.until} by {tail.method(method)}: {tail.changed:,} {of.snapshot} changed "
        f"in {len(tail.files)} files that hold {tail.stored:,}"
    )
    notes = [fold_note, "would trim nothing" if point is None else f"would trim the changelog up to batch {point}"]
    if (archived := trim.archive_point(tables, config)) is not None:
        counts["events_trimmed"] = tables[schemas.EVENTS].read().where(trim.older_events(archived)).count()
        notes.append(f"would trim the archive before {format_time(archived)}")
    return run.finish(counts, notes)
