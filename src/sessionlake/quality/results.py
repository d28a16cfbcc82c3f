"""Validation results as rows of quality_results."""

import json
from typing import Any

from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult

from sessionlake.quality.frames import Checked

OBSERVED = ("observed_value", "element_count", "unexpected_percent")


def rows_of(
    result: ExpectationSuiteValidationResult, table: str, checked: Checked, run_id: str, at_us: int
) -> list[dict[str, Any]]:
    """Return a row an expectation."""
    return [
        {"run_id": run_id, "table": table, "version": checked.version, "at": at_us, **_row(one)}
        for one in result.results
    ]


def _row(result: ExpectationValidationResult) -> dict[str, Any]:
    config = result.expectation_config
    assert config is not None  # noqa: S101 (a validation sets it)
    kwargs = config.kwargs
    found = result.result or {}
    error = _error(result.exception_info)
    seen = {name: found[name] for name in OBSERVED if found.get(name) is not None}
    return {
        "name": kwargs.get("name", config.type),
        "expectation": config.type,
        "column": kwargs.get("column"),
        "severity": config.severity.value,
        "success": bool(result.success),
        "observed": json.dumps({"error": error} if error else seen, default=str),
        "unexpected_count": found.get("unexpected_count"),
    }


def _error(info: dict[str, Any] | None) -> str | None:
    """Return in one line why an expectation could not be evaluated; None if it could be."""
    for each in (info, *(info or {}).values()):
        if isinstance(each, dict) and each.get("raised_exception"):
            lines = str(each.get("exception_message") or "unknown error").strip().splitlines()
            return lines[0][:500]
    return None
