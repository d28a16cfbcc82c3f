"""Common parts of the streaming queries: how often they look for input, how they end, and the signs of a second driver."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.stopping import put_off

_EVERY_S = 1
_WAITS = "Waiting"
"""The beginning of a query's message if it waits for input, or for the next look at it."""
_SECOND_DRIVER = (
    "ConcurrentModification",
    "Multiple streaming",
    "CONCURRENT_STREAM_LOG_UPDATE",
    "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",  # both plan the first batch, and the other one was sooner
)


@contextmanager
def answered(batch: Callable[[DataFrame, int], None]) -> Iterator[Callable[[DataFrame, int], None]]:
    """Yield a function of a batch for the query of the block. It fails also by `sys.exit`, and lets go of `batch` at the end.

    py4j passes only exceptions on to Java, and Java would wait for good. And Java holds the function as long as the query: if
    `batch` held an object of the query, neither Java nor Python would ever drop it, 5 MB for each query.
    """
    held = [batch]

    def answering(rows: DataFrame, batch_id: int) -> None:
        try:
            held[0](rows, batch_id)
        except SystemExit as exit_:
            raise RuntimeError(f"sys.exit({exit_.code!r}) was called in a batch; raise an exception there") from exit_

    try:
        yield answering
    finally:
        held.clear()


def run_to_end(
    config: Config,
    writer: DataStreamWriter,
    *,
    once: bool,
    meanwhile: Callable[[], None] = lambda: None,
    waits: Callable[[], None] | None = None,
    ending: threading.Event | None = None,
) -> None:
    """Run a query until it is stopped or, with `once`, until all input that is available now is processed.

    `meanwhile` is called about every second, whether there is input or not: without, a query runs no batch.
    `waits` is called once, if the query waits for input: it has started then.
    `ending` is cleared at the start, and set before the query is stopped, which waits for the batch that runs.
    Raises StreamingQueryException if the query fails, KeyboardInterrupt if ctrl-C or SIGTERM has stopped it.
    """
    every = f"{parse_duration(config.pipeline.trigger)} microseconds"
    trigger = {"availableNow": True} if once else {"processingTime": every}
    ending = ending or threading.Event()
    ending.clear()
    with put_off() as asked_to_end:
        query = writer.trigger(**trigger).start()
        starts = waits
        try:
            while not query.awaitTermination(_EVERY_S) and not asked_to_end.is_set():
                if starts is not None and str(query.status["message"]).startswith(_WAITS):
                    starts()
                    starts = None
                meanwhile()
        except StreamingQueryException:
            # Ctrl-C in a terminal ends the workers, too, and with them the batch that runs.
            if not asked_to_end.is_set():
                raise
        finally:
            ending.set()
            query.stop()
        if asked_to_end.is_set():
            raise KeyboardInterrupt


def is_second_driver(text: str) -> bool:
    """Say whether a failed query's messages mean that another process runs it too."""
    return any(sign in text for sign in _SECOND_DRIVER)
