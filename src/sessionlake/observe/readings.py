"""The values of one source (the stream, a job's run, the tables) in Prometheus' form: over HTTP or in a file. Disk space is among them."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, RLock

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from sessionlake.config.load import Config
from sessionlake.errors import MetricsError
from sessionlake.observe import metrics
from sessionlake.observe.metrics import BUCKETS, METRICS, Metric


class Readings(Collector):
    """A source's values, by metric and labels. Each scrape sees a complete set."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._lock = RLock()
        self._values: dict[Metric, dict[tuple[str, ...], float]] = {}
        self._counted: dict[Metric, list[int]] = {}

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a scrape see all changes that are made inside, or none."""
        with self._lock:
            yield

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge, or a counter whose total is kept elsewhere."""
        with self._lock:
            self._values.setdefault(metric, {})[self._pipeline, *labels] = value

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            values = self._values.setdefault(metric, {})
            key = (self._pipeline, *labels)
            values[key] = values.get(key, 0) + value

    def observe(self, metric: Metric, value: float) -> None:
        """Count a histogram's value; the sum is kept like a counter."""
        with self._lock:
            buckets = self._counted.setdefault(metric, [0] * (len(BUCKETS) + 1))
            for at, bound in enumerate((*BUCKETS, float("inf"))):
                buckets[at] += value <= bound
        self.add(metric, value)

    def replace(self, values: "Readings") -> None:
        """Replace the values by another's. Values missing there disappear, for example a deleted table's."""
        with self._lock:
            self._values = values._values  # noqa: SLF001 (of this class)

    def has(self, metric: Metric) -> bool:
        """Say whether there is any value of a metric."""
        with self._lock:
            return bool(self._values.get(metric))

    def collect(self) -> Iterator[Family]:
        """Yield the values as Prometheus' families, in the registry's order."""
        with self._lock:
            held = {metric: dict(values) for metric, values in self._values.items()}
            counted = {metric: list(buckets) for metric, buckets in self._counted.items()}
        for metric in METRICS:
            if metric in held:
                yield _family(metric, held[metric], counted.get(metric, []))


def _family(metric: Metric, values: dict[tuple[str, ...], float], buckets: list[int]) -> Family:
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        bounds = [*map(str, BUCKETS), "+Inf"]
        for labels, total in values.items():
            histogram.add_metric(labels, list(zip(bounds, buckets, strict=True)), total)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry of these collectors only: the library's global registry would add metrics of the Python process."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return registry


class Merged(Collector):
    """The values of several collectors, each metric once."""

    def __init__(self, *parts: Collector) -> None:
        self.parts = list(parts)

    def collect(self) -> Iterator[Family]:
        """Yield the families, with the samples of all collectors."""
        families: dict[str, Family] = {}
        for part in tuple(self.parts):
            for family in part.collect():
                known = families.setdefault(family.name, family)
                if known is not family:
                    known.samples.extend(family.samples)
        yield from families.values()


@dataclass
class _Server:
    """A server of metrics in this process."""

    merged: Merged
    port: int
    stop: Callable[[], None]


_servers: dict[tuple[str, int], _Server] = {}
_starting = Lock()


@contextmanager
def served(readings: Collector, host: str, port: int) -> Iterator[int]:
    """Serve readings at /metrics and yield the port (one that is free if `port` is 0); MetricsError if it is taken.

    Readings of several pipelines with an equal address are served there together, if one process runs them.
    """
    with _starting:
        server = _servers.get((host, port)) or _started(host, port)
        if port:
            _servers[host, port] = server
        server.merged.parts.append(readings)
    try:
        yield server.port
    finally:
        with _starting:
            server.merged.parts.remove(readings)
            if not server.merged.parts:
                _servers.pop((host, port), None)
                server.stop()  # before another one can be started at the address


def _started(host: str, port: int) -> _Server:
    merged = Merged()
    try:
        server, thread = start_http_server(port, host, registry_of(merged))
    except OSError as error:
        raise MetricsError(
            f"metrics.port: {host}:{port} can't be listened on ({error.strerror or error}); "
            "stop the process that uses it or choose another port or host"
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return _Server(merged, server.server_port, stop)


def write_textfile(readings: Collector, path: Path) -> None:
    """Write a file for node_exporter's textfile collector, whole or not at all; MetricsError if that can't be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(path), registry_of(readings))
    except OSError as error:
        raise MetricsError(
            f"metrics.textfile: {os.fspath(path)!r} can't be written ({error.strerror or error}); "
            "choose a directory this user may write"
        ) from error


def set_disks(readings: Readings, config: Config) -> None:
    """Set free bytes and size of the disks of store, warehouse (a local one) and temporary files, as of now.

    A directory that does not exist yet counts as its nearest parent. An unreadable place has no value.
    """
    places = {"store": config.driver_store_dir, "temporary": tempfile.gettempdir()}
    if "://" not in config.pipeline.warehouse:
        places["warehouse"] = config.pipeline.warehouse
    for place, path in places.items():
        try:
            usage = shutil.disk_usage(_existing(Path(path)))
        except OSError:
            continue
        readings.set(metrics.DISK_FREE, usage.free, place)
        readings.set(metrics.DISK_SIZE, usage.total, place)


def _existing(path: Path) -> Path:
    return path if path.exists() or path == path.parent else _existing(path.parent)


def store_bytes(config: Config) -> int:
    """Return the size of the pipeline's stores on this machine, without files that a running stream removes meanwhile."""
    total = 0
    for directory, _, names in os.walk(config.driver_store_dir):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(directory, name).lstat().st_size
    return total
