"""The metrics of a job's run for node_exporter's textfile collector. The run itself ends too soon to be scraped."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from sessionlake.config.load import Config
from sessionlake.observe import metrics
from sessionlake.observe.metrics import Metric
from sessionlake.observe.readings import Readings, write_textfile


@dataclass(frozen=True)
class Ended:
    """An ended run of a job, good or bad."""

    job: str
    started: float
    """Seconds since 1970."""
    seconds: float
    success: bool
    counts: Mapping[str, int]


def textfile_of(config: Config, job: str) -> Path | None:
    """Return the file of a pipeline's job; None if the config names no directory."""
    directory = config.metrics.textfile
    return None if directory is None else Path(directory, f"sessionlake_{config.pipeline.name}_{job}.prom")


def write_run(config: Config, run: Ended) -> None:
    """Write the job's file again. After a failure it keeps the last success's time and, without newer counts, its counts."""
    path = textfile_of(config, run.job)
    if path is None:
        return
    readings = Readings(config.pipeline.name)
    readings.set(metrics.JOB_START, run.started, run.job)
    readings.set(metrics.JOB_SECONDS, run.seconds, run.job)
    readings.set(metrics.JOB_OK, int(run.success), run.job)
    if run.success:
        readings.set(metrics.JOB_SUCCESS, run.started + run.seconds, run.job)
    for item, value in run.counts.items():
        readings.set(metrics.JOB_ITEMS, value, run.job, item)
    missing = [m for m in (metrics.JOB_SUCCESS, metrics.JOB_ITEMS) if not readings.has(m)]
    _keep(readings, path, missing)
    write_textfile(readings, path)


def _keep(readings: Readings, path: Path, missing: Iterable[Metric]) -> None:
    try:
        families = list(text_string_to_metric_families(path.read_text()))
    except (OSError, ValueError):
        return  # the first run, or a file that is none of ours: there is nothing to keep
    for metric in missing:
        for sample in (s for family in families for s in family.samples if s.name == metric.name):
            if set(metric.labels) <= set(sample.labels):
                readings.set(metric, sample.value, *(sample.labels[name] for name in metric.labels[1:]))
