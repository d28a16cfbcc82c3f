"""The offsets of a batch: as Spark planned it, and as its checkpoint has them."""

import hashlib
import json
from typing import Any

from pyspark.sql import SparkSession

from sessionlake.errors import FencedError


def fingerprint(offsets: str | None) -> str | None:
    """Return a short hash of an offset file's text."""
    return None if offsets is None else hashlib.sha256(offsets.encode()).hexdigest()[:16]


def check_planned(spark: SparkSession, query: str, batch_id: int, offsets: str | None) -> None:
    """Raise FencedError unless a batch's offset file is what the running query of this name planned.

    A file system that does not keep two drivers from writing one file leaves the second one's offsets there, and a start
    after a crash would go on from these. What Spark hands to a batch names no offsets: they are asked of the query.
    """
    running = next((q for q in spark.streams.active if q.name == query), None)
    if running is None or offsets is None:
        return
    _, settings, *logged = offsets.splitlines()
    context: Any = running._jsq.streamingQuery().getLatestExecutionContext()  # noqa: SLF001
    ends = context.endOffsets().values().toList()
    planned = sorted(str(ends.apply(i).json()) for i in range(ends.size()))
    clock = int(context.offsetSeqMetadata().batchTimestampMs())
    if sorted(line for line in logged if line != "-") != planned or json.loads(settings)["batchTimestampMs"] != clock:
        raise FencedError(
            f"checkpoint: the offsets of batch {batch_id} of {query!r} are another driver's than this one's; "
            "this one stops, keep only one running on this warehouse"
        )
