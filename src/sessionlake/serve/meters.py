"""The query server's own metrics, for Prometheus. Metrics of the pipeline come from `sessionlake metrics` and from the stream."""

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from sessionlake.serve.follower import Follower

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Upper bounds in seconds: a key takes half a millisecond, a page some milliseconds, the tables tens to hundreds."""


class Meters:
    """Answers and refusals of one server, and how far it has followed its pipeline."""

    def __init__(self, pipeline: str, follower: Follower) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Followed(pipeline, follower))
        self._seconds = Histogram(
            "sessionlake_serve_answer_seconds",
            "How long answers took, from the request's head to the answer's bytes, by path",
            ("pipeline", "path"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._answers = Counter(
            "sessionlake_serve_answers_total",
            "Answers by path and HTTP status",
            ("pipeline", "path", "status"),
            registry=self._registry,
        )
        self._refusals = Counter(
            "sessionlake_serve_refusals_total",
            "Requests that were refused unread, by HTTP status: no token, too often, too many at once",
            ("pipeline", "status"),
            registry=self._registry,
        )
        self._pipeline = pipeline

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count an answer; `path` is one of the server's paths, which bounds the number of labels."""
        self._seconds.labels(self._pipeline, path).observe(seconds)
        self._answers.labels(self._pipeline, path, str(status)).inc()

    def refused(self, status: int) -> None:
        """Count a refusal."""
        self._refusals.labels(self._pipeline, str(status)).inc()

    def text(self) -> bytes:
        """Return all of it as Prometheus reads it."""
        return generate_latest(self._registry)


class _Followed(Collector):
    """How far a server has followed its pipeline, asked at each look."""

    def __init__(self, pipeline: str, follower: Follower) -> None:
        self._pipeline, self._follower = pipeline, follower

    def describe(self) -> list[Family]:
        """Return nothing: there is no value to look at before the first batch."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield the values."""
        follower = self._follower
        yield self._gauge("up_to_date", "0 if the last look at the pipeline's log failed", follower.failure is None)
        if follower.reached < 0:
            return
        now = follower.now
        age = time.time() - now.commit.committed_us / 1e6
        yield self._gauge("batch_id", "The batch that answers are of", now.commit.batch_id)
        yield self._gauge("batch_age_seconds", "How long ago that was committed", max(age, 0.0))
        if now.view is not None:
            missing = len(now.view.lacking)
            yield self._gauge(
                "missing_shards", "Shards that are not read here: of other hosts, or being restored", missing
            )

    def _gauge(self, name: str, meaning: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"sessionlake_serve_{name}", meaning, labels=("pipeline",))
        family.add_metric((self._pipeline,), value)
        return family
