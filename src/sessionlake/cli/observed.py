"""The trace of a command's run in Prometheus' textfile and in OpenLineage events, as the config asks for."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from sessionlake.cli.shared import console, show_warnings
from sessionlake.config.load import Config
from sessionlake.errors import MetricsError, NotNeededError
from sessionlake.jobs.registry import STREAM_RUN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.observe.lineage import Lineage
    from sessionlake.warehouse.batch_commit import BatchCommit

Counts = Callable[[Mapping[str, int]], None]
PUBLISH = "publish"


@contextmanager
def observed(config: Config, job: str, *, dry_run: bool = False) -> Iterator[Counts]:
    """Record a run: yields a function that takes its counts. A run that raises, or exits with another code than 0, has failed.

    Counts of several calls add up. A dry run leaves no trace.
    """
    if dry_run:
        yield lambda _: None
        return
    with _textfile(config, job) as counts, _recorded(config, job, streaming=False) as lineage:

        def take(found: Mapping[str, int]) -> None:
            for name, value in found.items():
                counts[name] = counts.get(name, 0) + value
            lineage.add(found)

        yield take


class StreamMetrics:
    """The metrics of a pipeline until they are closed: in a project also while the pipeline waits to be started again."""

    def __init__(self, config: Config) -> None:
        from sessionlake.observe.stream import StreamReadings

        self.readings = StreamReadings(config)
        self._serving = ExitStack()
        self._address: tuple[str, int] | None = None

    def serve(self, config: Config) -> bool:
        """Serve them at the address of a config, which may have changed; say whether they are served.

        A port that is in use is only a warning: the stream does its work without metrics.
        """
        from sessionlake.observe.readings import served

        host, port = config.metrics.host, config.metrics.port
        if (host, port) != self._address:
            self.close()
        if port is not None and self._address is None:
            try:
                bound = self._serving.enter_context(served(self.readings, host, port))
            except MetricsError as error:
                show_warnings([f"{error}; the stream runs without metrics"])
            else:
                self._address = host, port
                console.print(f"metrics at http://{host}:{bound}/metrics")
        return self._address is not None

    def close(self) -> None:
        """Serve them no longer."""
        self._serving.close()
        self._address = None


@contextmanager
def observed_stream(
    spark: "SparkSession", config: Config, kept: StreamMetrics | None = None
) -> Iterator[Callable[["BatchCommit"], None]]:
    """Serve a stream's metrics and send its lineage while it runs: yields a function that takes a committed batch.

    Metrics that are `kept` by the caller go on from an earlier run of the stream.
    """
    from sessionlake.observe.stream import listening
    from sessionlake.warehouse.schemas import COUNTS

    with ExitStack() as stack:
        lineage = stack.enter_context(_recorded(config, STREAM_RUN, streaming=True))
        metrics = kept or stack.enter_context(closing(StreamMetrics(config)))
        metrics.readings.starts(config)
        if metrics.serve(config):
            stack.enter_context(listening(spark, config, metrics.readings))

        def committed(batch: "BatchCommit") -> None:
            metrics.readings.committed(batch)
            # A batch names only its nonzero counts. In lineage 0 rows differ from an unknown number.
            lineage.add({name: batch.counts.get(name, 0) for name in COUNTS})

        yield committed


@contextmanager
def _recorded(config: Config, job: str, *, streaming: bool) -> Iterator["Lineage"]:
    from sessionlake.observe.lineage import Lineage

    lineage = Lineage(config, job, streaming=streaming)
    try:
        lineage.start()
        yield lineage
    except SystemExit as exit_:
        lineage.end(exit_ if exit_.code else None)
        raise
    except BaseException as error:
        # A pass that finds a stream at work was not needed; it is no failure of the pipeline.
        lineage.end(None if isinstance(error, NotNeededError) else error)
        raise
    lineage.end()


@contextmanager
def observed_publisher(config: Config) -> Iterator[Callable[[], None]]:
    """Record a publisher in the job's file, and by lineage: yields a function to call after each batch, which sets the job's last success.

    A publisher that is stopped has not failed.
    """
    write = _writer(config, PUBLISH, {})
    with _recorded(config, PUBLISH, streaming=True) as lineage:

        def batch_done() -> None:
            write(True)
            lineage.add({})

        try:
            yield batch_done
        except Exception:
            write(False)
            raise


@contextmanager
def _textfile(config: Config, job: str) -> Iterator[dict[str, int]]:
    """Write the job's file at the end of a run; if it can't be written a warning says so, since the run is done."""
    counts: dict[str, int] = {}
    write = _writer(config, job, counts)
    try:
        yield counts
    except SystemExit as exit_:
        write(not exit_.code)
        raise
    except BaseException as error:
        if not isinstance(error, NotNeededError):
            write(False)
        raise
    write(True)


def _writer(config: Config, job: str, counts: Mapping[str, int]) -> Callable[[bool], None]:
    """Return a function that writes the file of a run that starts now: its success, and the counts at the time of the call."""
    started, clock = time.time(), time.monotonic()

    def write(success: bool) -> None:  # noqa: FBT001 (a callback)
        from sessionlake.observe.runs import Ended, write_run

        try:
            write_run(config, Ended(job, started, time.monotonic() - clock, success, counts))
        except MetricsError as error:
            show_warnings([str(error)])

    return write
