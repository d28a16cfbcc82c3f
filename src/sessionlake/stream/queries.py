"""What the streaming queries share: how often they look for input, how they end, and the signs of a second driver."""

from collections.abc import Callable

from pyspark.sql.streaming.readwriter import DataStreamWriter

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config

_EVERY_S = 1
_SECOND_DRIVER = ("ConcurrentModification", "Multiple streaming", "CONCURRENT_STREAM_LOG_UPDATE")


def run_to_end(
    config: Config, writer: DataStreamWriter, *, once: bool, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Run a query until it is stopped or, with `once`, until all input that is available now is processed.

    `meanwhile` is called about every second, whether there is input or not: without, a query runs no batch.
    Raises StreamingQueryException where the query fails.
    """
    every = f"{parse_duration(config.pipeline.trigger)} microseconds"
    trigger = {"availableNow": True} if once else {"processingTime": every}
    query = writer.trigger(**trigger).start()
    try:
        while not query.awaitTermination(_EVERY_S):
            meanwhile()
    finally:
        query.stop()


def is_second_driver(text: str) -> bool:
    """Say whether a failed query's messages mean that another process runs it too."""
    return any(sign in text for sign in _SECOND_DRIVER)
