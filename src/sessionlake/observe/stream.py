"""Metrics of a stream while it runs: from the commits' metadata and Spark's progress reports, without a Spark job."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from prometheus_client.metrics_core import Metric as Family
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from sessionlake.aggregates import beyond
from sessionlake.config.load import Config
from sessionlake.engine.shard import CAUSES
from sessionlake.observe import metrics
from sessionlake.observe.counts import count_values, expiry_values
from sessionlake.observe.readings import Readings, set_disks, store_bytes
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.schemas import QUARANTINED

_WHOLE_TRIGGER = "triggerExecution"
_BEHIND = "maxOffsetsBehindLatest"


class StreamReadings(Readings):
    """Readings of a stream; the store and its disk are measured when somebody asks, not in the batch.

    They outlast a failure in a process that starts the stream again: values stay, times get older, counters go on.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config.pipeline.name)
        self.set(metrics.FAILING, 0)
        self._count_from_zero(config)

    def starts(self, config: Config) -> None:
        """Note the stream's start, with a config that may have changed since the last start."""
        with self.at_once():
            self.set(metrics.STREAM_START, time.time())
            self._count_from_zero(config)

    def fails(self) -> None:
        """Note a failure. A start alone does not end it, since the next batch may fail again."""
        self.set(metrics.FAILING, 1)

    def _count_from_zero(self, config: Config) -> None:
        """Give the counters that a config asks for a value, if they have none."""
        self._config = config
        self.add(metrics.BATCHES, 0)
        for metric, _, labels in count_values({}):
            self.add(metric, 0, *labels)
        self.add(metrics.VALUES_BEYOND, 0)
        if config.section.facts.quarantines:
            self.add(metrics.QUARANTINED, 0)
        self._expire({}, {})
        for cause in CAUSES:
            self.add(metrics.STORES_RESTORED, 0, cause)

    def collect(self) -> Iterator[Family]:
        """Yield all values, the store's size and the disks' as of now."""
        self.set(metrics.STORE_BYTES, store_bytes(self._config))
        set_disks(self, self._config)
        yield from super().collect()

    def committed(self, batch: BatchCommit) -> None:
        """Take in a committed batch."""
        with self.at_once():
            self.set(metrics.FAILING, 0)
            self.add(metrics.BATCHES, 1)
            for metric, value, labels in count_values(batch.counts):
                self.add(metric, value, *labels)
            self.add(metrics.VALUES_BEYOND, sum(beyond.by_aggregate(batch.counts).values()))
            if self._config.section.facts.quarantines:
                self.add(metrics.QUARANTINED, batch.counts.get(QUARANTINED, 0))
            self._expire(batch.state, batch.counts)
            for cause, shards in batch.places.causes.items():
                self.add(metrics.STORES_RESTORED, shards, cause)
            self.observe(metrics.BATCH_SECONDS, (batch.committed_us - batch.started_us) / 1e6)
            self.set(metrics.LAST_COMMIT, batch.committed_us / 1e6)
            if batch.watermark_us is not None:
                self.set(metrics.WATERMARK, batch.watermark_us / 1e6)

    def _expire(self, state: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        """Set the values of expiry from a batch's state, if the config has [ttl]."""
        if "ttl" not in self._config.live_settings():
            return
        for metric, value, labels in expiry_values(state, counts):
            change = self.set if metric.kind == "gauge" else self.add
            change(metric, value, *labels)

    def looked(self, timestamp: str) -> None:
        """Set the ISO time at which the stream last looked for input."""
        self.set(metrics.LAST_TRIGGER, datetime.fromisoformat(timestamp).timestamp())

    def triggered(self, timestamp: str, durations_ms: Mapping[str, int], sources: Sequence[Mapping[str, str]]) -> None:
        """Set values from Spark's report of a finished trigger: its ISO time, its phases, and its sources' metrics."""
        self.looked(timestamp)
        self.set(metrics.FAILING, 0)
        for phase, millis in durations_ms.items():
            if phase != _WHOLE_TRIGGER:
                self.add(metrics.PHASE_SECONDS, millis / 1000, phase)
        behind = [int(source[_BEHIND]) for source in sources if _BEHIND in source]
        if behind:
            self.set(metrics.OFFSETS_BEHIND, max(behind))


class _Listener(StreamingQueryListener):
    """Pass on Spark's reports about one query; called on a separate thread while batches run."""

    def __init__(self, name: str, readings: StreamReadings) -> None:
        self._name, self._readings = name, readings
        self._run_id: object = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        if event.name == self._name:
            self._run_id = event.runId
            self._readings.looked(event.timestamp)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        if progress.runId == self._run_id:
            sources = [source.metrics or {} for source in progress.sources]
            self._readings.triggered(progress.timestamp, progress.durationMs, sources)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        if event.runId == self._run_id:
            self._readings.triggered(event.timestamp, {}, ())

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: the last trigger's time ages, and alerts read this."""


@contextmanager
def listening(spark: SparkSession, config: Config, readings: StreamReadings) -> Iterator[None]:
    """Let Spark report the pipeline's triggers to the readings."""
    listener = _Listener(config.pipeline.name, readings)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)
