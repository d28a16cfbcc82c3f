"""Check the tables at pinned versions: results as Great Expectations stores them, as Data Docs, and in Delta."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.errors import JobError
from sessionlake.jobs.run import JobReport, JobRun, OnStep, start_run
from sessionlake.quality.context import open_context, remove_older, rows_of, validate
from sessionlake.quality.frames import Inputs, frames_of, pin
from sessionlake.quality.suites import load_suite, parameters
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import spark_schema

JOB = "quality"
_FAILS_ON = {"critical": ("failed_critical",), "warn": ("failed_critical", "failed_warning")}
Rows = list[dict[str, Any]]


def run_quality(
    spark: SparkSession,
    config: Config,
    *,
    only: Sequence[str] = (),
    fail_on: str = "critical",
    data_docs: Path | None = None,
    run_id: str | None = None,
    dry_run: bool = False,
    on_step: OnStep = lambda _: None,
) -> JobReport:
    """Check all tables, or only some. The report counts failed checks by severity; it has failed if `fail_on` includes one.

    `fail_on` is the least severity that counts, "critical" or "warn". It is no part of the run's arguments.

    The run writes quality_results, job_runs and the files below `data_docs` (by default `quality` next to the config),
    and nothing else. A dry run writes none of them. A repeated run reports the results of the first time.
    """
    frames = frames_of(config)
    tables = _chosen(frames, only)
    arguments = {"tables": list(tables)}
    run = start_run(spark, config, JOB, run_id=run_id, arguments=arguments, pin=pin, dry_run=dry_run, on_step=on_step)
    if run.finished is not None:
        return _judged(replace(run.finished, notes=_failures(_found(run))), fail_on)
    directory = None if dry_run else (data_docs or config.data_docs)
    inputs = Inputs(run.tables, config, run.pinned, run.started_us)
    if directory is not None:
        remove_older(directory, run.started_us - parse_duration(config.compact.runs))
    context = open_context(directory)
    values = parameters(inputs)
    rows: Rows = []
    run.expect(len(tables) + 1 + (directory is not None))
    for table in tables:
        with run.step(f"checking {table}"):
            checked = frames[table](inputs)
            suite = load_suite(config, table, {**values, "columns": checked.columns})
            result = validate(context, suite, checked.frame, run.run_id, run.started_us)
            rows += rows_of(result, table, checked, run.run_id, run.started_us)
        failpoints.hit(f"quality_checked_{table}")
    with run.step("keeping the results"):
        _store(run, rows)
    failpoints.hit("quality_stored")
    notes = _failures(rows)
    if directory is not None:
        with run.step("writing Data Docs"):
            notes += [f"Data Docs: {url}" for url in context.build_data_docs().values()]
    failpoints.hit("quality_documented")
    return _judged(run.finish(_counts(rows), notes), fail_on)


def _judged(report: JobReport, fail_on: str) -> JobReport:
    return replace(report, failed=any(report.counts[name] for name in _FAILS_ON[fail_on]))


def _chosen(known: Collection[str], only: Sequence[str]) -> tuple[str, ...]:
    for table in only:
        if table not in known:
            raise JobError(f"--table: {table!r} has no suite; write one of {', '.join(known)}")
    return tuple(table for table in known if not only or table in only)


def _store(run: JobRun, rows: Rows) -> None:
    if run.dry_run:
        return
    schema = schemas.QUALITY_RESULTS_SCHEMA
    run.tables[schemas.QUALITY_RESULTS].create(schema, "What the quality job found: a row a run and expectation")
    table = pa.Table.from_pylist(rows, schema=schema)
    frame = run.tables.spark.createDataFrame(table, spark_schema(schema)).coalesce(1)
    run.append(schemas.QUALITY_RESULTS, frame)


def _counts(rows: Rows) -> dict[str, int]:
    failed = [row["severity"] for row in rows if not row["success"]]
    by_severity = {f"failed_{severity}": failed.count(severity) for severity in ("critical", "warning", "info")}
    return {"checks": len(rows), "passed": len(rows) - len(failed), **by_severity}


def _found(run: JobRun) -> Rows:
    """Return the results that the run stored when it ended."""
    stored = run.tables[schemas.QUALITY_RESULTS].read().where(F.col("run_id") == run.run_id)
    return [row.asDict() for row in stored.collect()]


def _failures(rows: Rows) -> list[str]:
    """Return a line a failed check, the severe ones first."""
    order = {"critical": 0, "warning": 1, "info": 2}
    failed = sorted((row for row in rows if not row["success"]), key=lambda row: order[row["severity"]])
    return [f"{row['severity']}: {row['table']}.{row['name']}: {row['observed']}" for row in failed]
