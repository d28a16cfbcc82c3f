"""The offsets of a batch, as Spark planned them and as its checkpoint has them."""

import hashlib
import json
from typing import TYPE_CHECKING, Any

from sessionlake.errors import FencedError, PipelineStateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fingerprint(offsets: str | None) -> str | None:
    """Return a short hash of an offset file's text; None for None.

    >>> fingerprint("v1")
    '3bfc269594ef6492'
    """
    return None if offsets is None else hashlib.sha256(offsets.encode()).hexdigest()[:16]


def clock_of(offsets: str | None) -> int:
    r"""Return a batch's clock from its offset file's text, in microseconds: the batch's `current_timestamp`.

    Raises PipelineStateError if there is no such file. Without a clock all events would be dead letters.

    >>> clock_of('v1\n{"batchTimestampMs": 1700000000123}\n{"0": 5}')
    1700000000123000
    """
    if offsets is None:
        raise PipelineStateError(
            "checkpoint: a planned batch's offsets can't be read; see that the warehouse can, and start again"
        )
    return int(json.loads(offsets.splitlines()[1])["batchTimestampMs"]) * 1000


class PlannedOffsets:
    """The offsets that a running query has planned, as Spark holds them in memory."""

    def __init__(self, spark: "SparkSession", query: str) -> None:
        self._spark, self._query = spark, query
        self._running: Any = None

    def check(self, batch_id: int, offsets: str | None) -> None:
        """Raise FencedError unless a batch's offset file has the offsets that the query planned.

        Not every file system keeps two drivers from writing one file. Then the file has the second driver's offsets, and a
        start after a crash would continue from those.
        """
        # Spark passes no offsets to a batch, so they are read from the query. Each call is a round trip to the JVM, so there
        # are few.
        if self._running is None or not self._running.isActive():
            query = next((q for q in self._spark.streams.active if q.name == self._query), None)
            self._running = None if query is None else query._jsq.streamingQuery()  # noqa: SLF001
        if self._running is None or offsets is None:
            return
        _, settings, *logged = offsets.splitlines()
        context = self._running.getLatestExecutionContext()
        # An offset's text is its JSON, in a single line, as the file has it.
        planned = str(context.endOffsets().values().mkString("\n")).splitlines()
        clock = int(context.offsetSeqMetadata().batchTimestampMs())
        same = sorted(line for line in logged if line != "-") == sorted(planned)
        if not same or json.loads(settings)["batchTimestampMs"] != clock:
            raise FencedError(
                f"checkpoint: the offsets of batch {batch_id} of {self._query!r} are another driver's than this one's; "
                "this one stops, keep only one running on this warehouse"
            )
