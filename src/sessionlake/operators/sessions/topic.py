"""The records of sessions' tombstones in the topic that the events come from."""

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionlake.stream.capabilities import TopicTombstones


def _headers() -> Mapping[str, Column]:
    return {
        "key": F.col("key"),
        "start": F.unix_micros("start_time").cast("string"),
        "revision": F.col("revision").cast("string"),
        "correction": F.col("correction_id"),
    }


TOMBSTONES = TopicTombstones("key", _headers)
"""Of rows of corrections. One that arrives twice is stale the second time, and does no harm."""
