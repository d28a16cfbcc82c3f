"""Suites: files that people edit, bounds on aggregates from the config, and the numbers that suites refer to.

Numbers come from the config, from the pinned batch, and from the counts of all batches.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from great_expectations.core import ExpectationSuite
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from pyspark.sql import functions as F

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.config.shipped import shipped_directory
from sessionlake.errors import ConfigError
from sessionlake.jobs.reconcile import OUTCOMES, Accepted
from sessionlake.operators.shared.cleanups.names import EXPIRED_EVENTS
from sessionlake.quality.frames import SECOND_US, Inputs, batches_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import changelog_of
from sessionlake.warehouse.dialects import SPARK


def parameters(inputs: Inputs) -> dict[str, Any]:
    """Return the parameters of a run, by name; docs/jobs/quality.md explains them."""
    quality, pinned = inputs.config.quality, inputs.pinned
    return {
        **inputs.kind.suite_values(),
        "batch_id": pinned["batch_id"],
        "with_id": inputs.config.with_ids,
        "with_key": all(spec.columns.key is not None for spec in inputs.kind.inputs.values()),
        "forgotten": pinned["forgotten"],
        "max_age_seconds": parse_duration(quality.max_age) / SECOND_US,
        "max_null_key_rate": quality.max_null_key_rate,
        "max_late_rate": quality.max_late_rate,
        "max_dead_rate": quality.max_dead_rate,
        "max_duplicate_rate": quality.max_duplicate_rate,
        **_expected_rows(inputs),
    }


def _expected_rows(inputs: Inputs) -> dict[str, int | None]:
    """Return the bounds of the number of events in sessions or windows, and of the rows of late_events.

    Sessions hold exactly the accepted and restated events, less those of sessions that [ttl] removed. If a correction
    has removed sessions, or some outcomes are not known, that is only an upper bound, to which all events that
    corrections restate or put are added.

    An event may be in several windows, or in none that was sent yet. Such windows may hold any number of events.
    """
    names = ("accepted", "late", "applied")
    sums = batches_of(inputs).agg(*(F.coalesce(F.sum(name), F.lit(0)) for name in names))
    accepted, late, applied = sums.collect()[0]
    put = F.aggregate(F.col("put.event_count"), F.lit(0).cast("bigint"), lambda total, n: total + n)
    added = F.coalesce(F.when(F.col("kind") == "restate", F.col("event_count")), put, F.lit(0))
    advance = F.count_if(F.col("kind").isin("advance", "tick", "flush"))
    counted = inputs.table(schemas.CORRECTIONS).agg(F.count("*"), advance, F.coalesce(F.sum(added), F.lit(0)))
    corrections, advances, events = counted.collect()[0]
    known = Accepted(
        *(accepted, applied, corrections, advances, *_inputs_totals(inputs), inputs.pinned["forgotten"]),
        expired=inputs.pinned.get(EXPIRED_EVENTS, 0),
    )
    exact = inputs.config.sums_events
    most = accepted + events if known.events is None else known.events
    return {
        "events_at_least": (known.events or 0) if exact else 0,
        "events_at_most": most if exact else None,
        "late_at_least": 0 if inputs.pinned["forgotten"] else late,
        "late_at_most": late,
    }


def _inputs_totals(inputs: Inputs) -> tuple[int, int, int]:
    """Return the sums of OUTCOMES."""
    applied = inputs.committed(schemas.CORRECTION_OUTCOMES).where(F.col("outcome") == schemas.APPLIED)
    adding, removing, restated = applied.agg(*map(F.expr, OUTCOMES)).collect()[0]
    return adding, removing, restated


_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_SHIPPED = "expectations"


def suites_directory(config: Config) -> Path:
    """Return the suites' directory: the config's, otherwise the one next to the config, otherwise the package's."""
    named = config.quality.expectations
    if named is not None:
        return Path(config.directory, named)
    beside = Path(config.directory, _SHIPPED)
    if beside.is_dir():
        return beside
    return shipped_directory(_SHIPPED)


def load_suite(config: Config, table: str, values: dict[str, Any]) -> ExpectationSuite:
    """Return a table's suite, `{name}` in its SQL replaced by parameters; ConfigError if the file is at fault."""
    end = config.entry.suites if table in changelog_of(config).tables else ""
    file = suites_directory(config) / f"{table}{end}.json"
    try:
        content = json.loads(file.read_text())
        expectations = content["expectations"]
    except OSError as error:
        raise ConfigError(
            f"quality.expectations: {str(file)!r} can't be read ({error.strerror}); name a directory with a suite for each table"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f'quality.expectations: {str(file)!r} is no suite ({error}); write {{"expectations": [...]}} as JSON'
        ) from error
    if table == changelog_of(config).snapshot:
        expectations = [*expectations, *_bounds(config), *_quarantine(config)]
    return ExpectationSuite(
        name=table,
        expectations=[_expectation(str(file), n, raw, values) for n, raw in enumerate(expectations, 1)],
    )


def _expectation(file: str, number: int, raw: Any, values: dict[str, Any]) -> Expectation:
    """Return an expectation of the file. It is built here because a suite given the text would only log an error, and leave the expectation out."""
    try:
        filled = _filled(raw, values)
        return ExpectationConfiguration(**{k: v for k, v in filled.items() if k != "id"}).to_domain_obj()
    except Exception as error:
        # Great Expectations raises errors of many classes here, pydantic's among them.
        raise ConfigError(
            f"quality.expectations: {file!r}: expectation {number} is wrong: {error}; correct or remove it"
        ) from error


def _filled(part: Any, values: dict[str, Any]) -> Any:
    """Return a part of an expectation with parameters in place of {name} in texts and of {"$PARAMETER": name}."""
    match part:
        case {"$PARAMETER": name}:
            return _value(name, values)
        case dict():
            return {key: _filled(value, values) for key, value in part.items()}
        case list():
            return [_filled(value, values) for value in part]
        case str():
            return _PLACEHOLDER.sub(lambda found: str(_value(found[1], values)), part)
        case _:
            return part


def _value(name: str, values: dict[str, Any]) -> Any:
    if name not in values:
        raise ConfigError(f"no parameter is named {name!r}; write one of {', '.join(sorted(values))}")
    return values[name]


def _quarantine(config: Config) -> Iterator[dict[str, Any]]:
    """Yield the config's expectations about the share of sessions in quarantine."""
    rule = config.quarantined_sql(SPARK.micros)
    if rule is not None:
        yield {
            "type": "expect_aggregate_to_be_between",
            "severity": "warning",
            "description": "quarantined_share: few sessions are in quarantine",
            "kwargs": {
                "name": "quarantined_share",
                "sql": f"coalesce(avg(case when {rule} is null then 0 else 1 end), 0)",
                "min_value": 0,
                "max_value": config.quality.max_quarantine_rate,
            },
        }


def _bounds(config: Config) -> Iterator[dict[str, Any]]:
    """Yield the config's expectations about the distribution of aggregates."""
    for name, bounds in config.quality.aggregates.items():
        measured = {f"quantile {q}": (f"percentile_approx({name}, {q})", b) for q, b in bounds.quantiles.items()}
        if bounds.mean is not None:
            measured["mean"] = (f"avg({name})", bounds.mean)
        if bounds.range is not None:
            low, high = bounds.range
            measured["minimum"] = (f"min({name})", [low, high])
            measured["maximum"] = (f"max({name})", [low, high])
        for what, (sql, (low, high)) in measured.items():
            title = f"{what} of {name}"
            yield {
                "type": "expect_aggregate_to_be_between",
                "severity": bounds.severity,
                "description": f"{title} lies within the bounds of the config",
                "kwargs": {"name": title, "sql": sql, "min_value": low, "max_value": high, "column": name},
            }
