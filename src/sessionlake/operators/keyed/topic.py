"""The records of tombstones, in the topic that the events come from, for rows of a keyed table that expired."""

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionlake.operators.keyed.table import TABLE
from sessionlake.stream.capabilities import TopicTombstones
from sessionlake.warehouse.changelog import CAUSE


def _headers() -> Mapping[str, Column]:
    return {
        "key": F.col(TABLE.key),
        "revision": F.col("revision").cast("string"),
        "offset": F.col("event_offset").cast("string"),
        "cause": F.col(CAUSE),
    }


TOMBSTONES = TopicTombstones(TABLE.key, _headers, partition="event_partition", of_keys=True)
"""To the partition of the row's record; its producer may have chosen it by any rule."""
