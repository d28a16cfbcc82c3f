"""Lineage of a run: when to send events to OpenLineage, and their counts. `openlineage.py` builds the events.

`listener_conf` sets Spark's own listener, which reports queries that Spark itself plans and writes.
"""

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.config.secrets import hide
from sessionlake.errors import MetricsError, without_values
from sessionlake.extras import require_extra
from sessionlake.jars import find_jars
from sessionlake.observe.datasets import datasets

if TYPE_CHECKING:
    from sessionlake.observe.openlineage import OpenLineageSender


class Lineage:
    """One run's events; none if the config has no transport."""

    def __init__(self, config: Config, job: str, *, streaming: bool = False) -> None:
        self._config, self._job = config, job
        self._counts: dict[str, int] = {}
        self._every = parse_duration(config.lineage.every) / 1e6
        self._sender = None if config.lineage.transport is None else _sender(config, job, streaming=streaming)
        self._sent_at = time.monotonic()

    def start(self) -> None:
        """Send START, with the datasets that the job reads and writes."""
        self._send("START")

    def add(self, counts: Mapping[str, int]) -> None:
        """Add counts, and send RUNNING if the last event is `lineage.every` ago."""
        for name, value in counts.items():
            self._counts[name] = self._counts.get(name, 0) + value
        if time.monotonic() - self._sent_at >= self._every:
            self._send("RUNNING")

    def end(self, error: BaseException | None = None) -> None:
        """Send the last event: COMPLETE, ABORT if a user or a scheduler stopped the run, FAIL with the error's first line, values left out."""
        if error is None:
            self._send("COMPLETE")
        elif isinstance(error, KeyboardInterrupt):
            self._send("ABORT")
        else:
            self._send(
                "FAIL", f"exit code {error.code}" if isinstance(error, SystemExit) else hide(without_values(error))
            )
        if self._sender is not None:
            self._sender.close()

    def _send(self, state: str, error: str | None = None) -> None:
        if self._sender is not None:
            self._sent_at = time.monotonic()
            self._sender.send(state, *datasets(self._config, self._job, self._counts), error)


def _sender(config: Config, job: str, *, streaming: bool) -> "OpenLineageSender":
    require_extra("lineage.transport", "openlineage.client", "lineage")
    # Only pipelines that send lineage need the package.
    from sessionlake.observe.openlineage import OpenLineageSender  # noqa: PLC0415

    try:
        return OpenLineageSender(config, job, streaming=streaming)
    except (ValueError, RuntimeError) as error:
        raise MetricsError(
            f"lineage: {' '.join(str(error).split())}; correct the section [lineage] or the variable OPENLINEAGE_PARENT_ID"
        ) from error


def api_key(config: Config) -> str | None:
    """Return the key that the config's variable holds; MetricsError if it holds none."""
    variable = config.lineage.api_key_variable
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise MetricsError(
            f"lineage.api_key_variable: the environment has no {variable!r}; set it, or remove the setting"
        )
    return os.environ[variable]


LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"


def listener_conf(config: Config) -> dict[str, str]:
    """Return the settings; none without `lineage.listener`, or under spark-submit, whose --conf and --jars decide.

    Raises ConfigError if the listener's jar can't be had.
    """
    lineage = config.lineage
    if not lineage.listener or "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    conf = {
        "spark.jars": ",".join(map(str, [*find_jars(), *find_jars("openlineage")])),
        "spark.extraListeners": LISTENER,
        "spark.openlineage.namespace": lineage.namespace,
        "spark.openlineage.transport.type": str(lineage.transport),
    }
    if lineage.transport == "file":
        return {**conf, "spark.openlineage.transport.location": str(lineage.path)}
    conf |= {
        "spark.openlineage.transport.url": str(lineage.url),
        "spark.openlineage.transport.endpoint": lineage.endpoint,
    }
    key = api_key(config)
    if key is not None:
        conf |= {"spark.openlineage.transport.auth.type": "api_key", "spark.openlineage.transport.auth.apiKey": key}
        # Spark's own pattern, and the key: else its UI would show it.
        conf["spark.redaction.regex"] = "(?i)secret|password|token|access[.]?key|apikey"
    return conf
