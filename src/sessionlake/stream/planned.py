"""The offsets of a batch: as Spark planned it, and as its checkpoint has them."""

import hashlib
import json
from typing import Any

from pyspark.sql import SparkSession

from sessionlake.errors import FencedError, PipelineStateError


def fingerprint(offsets: str | None) -> str | None:
    """Return a short hash of an offset file's text."""
    return None if offsets is None else hashlib.sha256(offsets.encode()).hexdigest()[:16]


def clock_of(offsets: str | None) -> int:
    """Return a batch's clock by its offset file's text, in microseconds: what `current_timestamp` is in the batch.

    Raises PipelineStateError where there is no such file: under a clock of nothing all events would be dead letters.
    """
    if offsets is None:
        raise PipelineStateError(
            "checkpoint: a planned batch's offsets can't be read; see that the warehouse can, and start again"
        )
    return int(json.loads(offsets.splitlines()[1])["batchTimestampMs"]) * 1000


class PlannedOffsets:
    """What the running query of a name has planned, as Spark holds it in memory."""

    def __init__(self, spark: SparkSession, query: str) -> None:
        self._spark, self._query = spark, query
        self._running: Any = None

    def check(self, batch_id: int, offsets: str | None) -> None:
        """Raise FencedError unless the text of a batch's offset file is what the query planned.

        A file system that does not keep two drivers from writing one file leaves the second one's offsets there, and a
        start after a crash would go on from these. What Spark hands to a batch names no offsets: they are asked of the
        query, in few calls, for each is a round trip to the JVM.
        """
        if self._running is None or not self._running.isActive():
            found = next((q for q in self._spark.streams.active if q.name == self._query), None)
            self._running = None if found is None else found._jsq.streamingQuery()  # noqa: SLF001
        if self._running is None or offsets is None:
            return
        _, settings, *logged = offsets.splitlines()
        context = self._running.getLatestExecutionContext()
        # An offset's text is its JSON, of one line, as the file has it.
        planned = str(context.endOffsets().values().mkString("\n")).splitlines()
        clock = int(context.offsetSeqMetadata().batchTimestampMs())
        same = sorted(line for line in logged if line != "-") == sorted(planned)
        if not same or json.loads(settings)["batchTimestampMs"] != clock:
            raise FencedError(
                f"checkpoint: the offsets of batch {batch_id} of {self._query!r} are another driver's than this one's; "
                "this one stops, keep only one running on this warehouse"
            )
