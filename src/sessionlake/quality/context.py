"""Great Expectations without its output: its results and Data Docs, one validation of one table, and results as rows of quality_results."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import great_expectations as gx
from great_expectations.core import ExpectationSuite, ExpectationSuiteValidationResult, ExpectationValidationResult
from great_expectations.core.batch_definition import BatchDefinition
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.data_context.data_context.abstract_data_context import AbstractDataContext
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.datasource.fluent.spark_datasource import SparkDatasource
from pyspark.sql import DataFrame

# Its expectations are known to Great Expectations once they are imported.
from sessionlake.quality import expectations  # noqa: F401
from sessionlake.quality.frames import Checked

_RESULTS = ("gx/uncommitted/validations", "gx/uncommitted/data_docs/local_site/validations")
"""The folders in which Great Expectations keeps a file, and a page of Data Docs, for each run and table."""
_DATASOURCE, _WHOLE = "sessionlake", "whole table"


def open_context(directory: Path | None) -> AbstractDataContext:
    """Return a context that keeps its files in a directory, made if missing, or (None) keeps nothing."""
    if directory is None:
        context: AbstractDataContext = gx.get_context(mode="ephemeral")
    else:
        directory.mkdir(parents=True, exist_ok=True)
        context = gx.get_context(mode="file", project_root_dir=str(directory))
    if context.config.analytics_enabled is not False:
        context.enable_analytics(False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return context


def remove_older(directory: Path, before_us: int) -> None:
    """Remove results and pages of runs before a moment: each run renders all remaining pages."""
    for results in _RESULTS:
        for file in (directory / results).rglob("*"):
            if file.is_file() and file.stat().st_mtime_ns < before_us * 1000:
                file.unlink(missing_ok=True)


def validate(
    context: AbstractDataContext, suite: ExpectationSuite, frame: DataFrame, run_id: str, started_us: int
) -> ExpectationSuiteValidationResult:
    """Check a table against its suite and store the result under the run's name: a run done again replaces it."""
    batch = _batch_definition(context, suite.name)
    definition = context.validation_definitions.add_or_update(
        gx.ValidationDefinition(name=suite.name, data=batch, suite=context.suites.add_or_update(suite))
    )
    run = RunIdentifier(run_name=run_id, run_time=datetime.fromtimestamp(started_us / 1e6, UTC))
    return definition.run(batch_parameters={"dataframe": frame}, run_id=run)


def _batch_definition(context: AbstractDataContext, table: str) -> BatchDefinition[None]:
    """Return the definition of a whole table; earlier runs' definitions stay, for people who open the context."""
    if _DATASOURCE not in context.data_sources.all():
        # Persisting would cost more than a pass over the table, which most suites need only once.
        context.data_sources.add_spark(_DATASOURCE, persist=False)
    source = cast("SparkDatasource", context.data_sources.get(_DATASOURCE))
    if table not in source.get_asset_names():
        source.add_dataframe_asset(table)
    asset = source.get_asset(table)
    if not asset.batch_definitions:
        asset.add_batch_definition_whole_dataframe(_WHOLE)
    return asset.get_batch_definition(_WHOLE)


OBSERVED = ("observed_value", "element_count", "unexpected_percent")


def rows_of(
    result: ExpectationSuiteValidationResult, table: str, checked: Checked, run_id: str, at_us: int
) -> list[dict[str, Any]]:
    """Return a row an expectation."""
    return [
        {"run_id": run_id, "table": table, "version": checked.version, "at": at_us, **_row(validation)}
        for validation in result.results
    ]


def _row(result: ExpectationValidationResult) -> dict[str, Any]:
    config = result.expectation_config
    assert config is not None  # noqa: S101 (a validation sets it)
    kwargs = config.kwargs
    details = result.result or {}
    error = _error(result.exception_info)
    seen = {name: details[name] for name in OBSERVED if details.get(name) is not None}
    return {
        "name": kwargs.get("name", config.type),
        "expectation": config.type,
        "column": kwargs.get("column"),
        "severity": config.severity.value,
        "success": bool(result.success),
        "observed": json.dumps({"error": error} if error else seen, default=str),
        "unexpected_count": details.get("unexpected_count"),
    }


def _error(info: dict[str, Any] | None) -> str | None:
    """Return in one line why an expectation could not be evaluated; None if it could be."""
    for each in (info, *(info or {}).values()):
        if isinstance(each, dict) and each.get("raised_exception"):
            lines = str(each.get("exception_message") or "unknown error").strip().splitlines()
            return lines[0][:500]
    return None
