"""What the streaming queries share: how often they look for input, how they end, and the signs of a second driver."""

from pyspark.sql.streaming.readwriter import DataStreamWriter

from sessionlake.config import Config
from sessionlake.durations import parse_duration

_SECOND_DRIVER = ("ConcurrentModification", "Multiple streaming", "CONCURRENT_STREAM_LOG_UPDATE")


def run_to_end(config: Config, writer: DataStreamWriter, *, once: bool) -> None:
    """Run a query until it is stopped or, with `once`, until all input that is available now is processed.

    Raises StreamingQueryException where it fails.
    """
    every = f"{parse_duration(config.pipeline.trigger)} microseconds"
    trigger = {"availableNow": True} if once else {"processingTime": every}
    query = writer.trigger(**trigger).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def is_second_driver(text: str) -> bool:
    """Say whether a failed query's messages mean that another process runs it too."""
    return any(sign in text for sign in _SECOND_DRIVER)
