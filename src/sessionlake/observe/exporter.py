"""The exporter: it reads metrics from the tables again and again, for as long as it runs."""

import time
from collections.abc import Iterator
from threading import Event

from prometheus_client import Metric
from prometheus_client.registry import Collector

from sessionlake.config.load import Config
from sessionlake.observe import metrics
from sessionlake.observe.readings import Readings, set_disks
from sessionlake.observe.standing import last_failure
from sessionlake.observe.tables import TablesState, looked_again, read_state, readings_of
from sessionlake.observe.watch import Watch


class Exporter(Collector):
    """Keeps `readings` up to date; if the tables can't be read they stay as they were, and say so.

    A scrape that comes before the first look waits for it: an answer without figures would say that the pipeline has none.
    """

    def __init__(self, config: Config) -> None:
        self.readings = Readings(config.pipeline.name)
        self.readings.set(metrics.REFRESH_SUCCESS, 0)
        self._config = config
        self._looked = Event()
        self._watch: Watch[TablesState] = Watch(config, read_state, looked_again)

    def collect(self) -> Iterator[Metric]:
        """Yield the values as Prometheus' families, after the first look."""
        self._looked.wait()
        yield from self.readings.collect()

    def refresh(self) -> BaseException | None:
        """Read the tables; return the error that kept them from being read, if any."""
        try:
            return self._look()
        finally:
            self._looked.set()

    def _look(self) -> BaseException | None:
        started = time.monotonic()
        failing = int(last_failure(self._config) is not None)
        try:
            newest_readings = readings_of(self._config, self._watch.look())
        except Exception as error:  # noqa: BLE001 (a table may have anything, and the next look may succeed)
            self.readings.set(metrics.REFRESH_SUCCESS, 0)
            self.readings.set(metrics.FAILING, failing)
            return error
        set_disks(newest_readings, self._config)
        newest_readings.set(metrics.FAILING, failing)
        newest_readings.set(metrics.REFRESH, time.time())
        newest_readings.set(metrics.REFRESH_SUCCESS, 1)
        newest_readings.set(metrics.REFRESH_SECONDS, time.monotonic() - started)
        self.readings.replace(newest_readings)
        return None
