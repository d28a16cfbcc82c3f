"""The sections [metrics] and [lineage]."""

from typing import Literal

from pydantic import Field

from sessionlake.config.fields import Duration, Section
from sessionlake.errors import ConfigError


class MetricsSection(Section):
    """The places for Prometheus' metrics; without a port and a textfile there are none."""

    port: int | None = Field(default=None, ge=0, le=65535)
    """The stream serves /metrics here while it runs; 0 takes a free one."""
    host: str = "127.0.0.1"
    textfile: str | None = None
    """Directory of node_exporter's textfile collector, for metrics of jobs and of runs with --once."""


class LineageSection(Section):
    """The target of OpenLineage events; none without a transport."""

    transport: Literal["http", "file", "client"] | None = None
    """`client` leaves it to OpenLineage's own openlineage.yml and OPENLINEAGE_... variables."""
    url: str | None = None
    endpoint: str = "api/v1/lineage"
    api_key_variable: str | None = None
    """Name of the environment variable that holds the key; the key itself has no place in a config."""
    path: str | None = None
    """File that the events are appended to, one a line."""
    namespace: str = "sessionlake"
    every: Duration = "5 minutes"
    """The shortest time between two events of a running stream, each with its counts since the start."""
    listener: bool = False
    """Whether OpenLineage's Spark listener sends its events too; its jar is fetched on first use."""


def check_observed(metrics: MetricsSection, lineage: LineageSection) -> None:
    """Raise a ConfigError for invalid targets of metrics or lineage."""
    if metrics.textfile and "://" in metrics.textfile:
        raise ConfigError(f"metrics.textfile: {metrics.textfile!r} must be a local directory; write a path")
    needed = {"http": ("url", lineage.url), "file": ("path", lineage.path)}.get(lineage.transport or "")
    if needed and not needed[1]:
        raise ConfigError(f"lineage.{needed[0]}: is missing; transport {lineage.transport!r} needs it")
    if lineage.path and "://" in lineage.path:
        raise ConfigError(f"lineage.path: {lineage.path!r} must be a local file; write a path")
    if lineage.listener and lineage.transport in (None, "client"):
        raise ConfigError("lineage.transport: is missing; the listener needs 'http' or 'file'")
