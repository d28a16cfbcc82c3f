"""The sections of scheduled jobs: [compact], [quality] and [expire]."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from sessionlake.config.fields import Duration, Section
from sessionlake.errors import ConfigError


class CompactSection(Section):
    """Settings of the compaction of snapshot and changelog."""

    safety: Duration = "1 day"
    """How long changes stay in the changelog after they were folded into the snapshot."""
    file_mb: int = Field(default=128, ge=1, le=4096)
    """Size of the files that compaction aims at."""
    archive: Duration | None = None
    """How long events stay in the archive, before the watermark; for ever if none is given."""
    dead_letters: Duration = "365 days"
    """How long dead letters of events keep their text, key and time; the rows stay, with their reason and place."""
    runs: Duration = "90 days"
    """How long runs of compact and quality stay in job_runs, and their results in quality_results and Data Docs."""
    vacuum: Duration = "7 days"
    """How long files that belong to no table version stay; the table's own retention if that is longer."""


Between = Annotated[list[float], Field(min_length=2, max_length=2)]
Rate = Annotated[float, Field(ge=0, le=1)]


class AggregateBounds(Section):
    """Bounds on the distribution of one aggregate over all sessions; inclusive, each a list of two."""

    range: Between | None = None
    mean: Between | None = None
    quantiles: dict[str, Between] = Field(default_factory=dict)
    """Bounds by quantile, a number between 0 and 1 written as text."""
    severity: Literal["warning", "critical"] = "warning"


class QualitySection(Section):
    """The expectations of the quality job, in addition to the rules that always hold."""

    expectations: str | None = None
    """Directory of the suites; `expectations` next to the config if that exists, else those of the package."""
    max_age: Duration = "1 day"
    """Age of the last commit."""
    rates_over: Duration = "7 days"
    """The rates below are those of the batches committed this long before the last commit."""
    max_null_key_rate: Rate = 0.01
    max_late_rate: Rate = 0.05
    max_dead_rate: Rate = 0.05
    max_duplicate_rate: Rate = 0.05
    max_quarantine_rate: Rate = 0.05
    """Share of sessions that are in quarantine."""
    aggregates: dict[str, AggregateBounds] = Field(default_factory=dict)


class ExpireSection(Section):
    """The rows that the job `expire` removes, and its rate."""

    ttl: Duration | None = None
    where: str | None = None
    """SQL over a session's row; if a ttl is given too, either of them is enough."""
    tables: dict[str, str] = Field(default_factory=dict)
    """Delta tables that the SQL of `where` may name."""
    max_tombstones_per_second: int = Field(default=10_000, ge=1)
    max_per_run: int | None = Field(default=None, ge=1)
    max_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """A run that would remove more than this share of all sessions is refused."""


def check_quality(quality: QualitySection, aggregates: Mapping[str, str]) -> None:
    """Raise a ConfigError for bounds on a name that is no aggregate, or bounds that no value can meet."""
    for name, bounds in quality.aggregates.items():
        where = f"quality.aggregates.{name}"
        if name not in aggregates:
            known = ", ".join(aggregates) or "none"
            raise ConfigError(f"{where}: {name!r} is no aggregate; write one of [aggregates] ({known})")
        named = {f"quantiles.{q}": b for q, b in bounds.quantiles.items()}
        for what, between in {"range": bounds.range, "mean": bounds.mean, **named}.items():
            if between is not None and not between[0] <= between[1]:
                raise ConfigError(f"{where}.{what}: {between} is empty; write the lower bound first")
        for quantile in bounds.quantiles:
            if not re.fullmatch(r"0(\.\d+)?|1(\.0+)?", quantile):
                raise ConfigError(
                    f"{where}.quantiles: {quantile!r} is no quantile; write a number from 0 to 1 as text, as in '0.99'"
                )
