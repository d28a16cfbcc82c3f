"""Look at a pipeline's tables again and again, without reading them again while nothing has changed."""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionlake import schemas
from sessionlake.config import Config
from sessionlake.errors import SessionlakeError
from sessionlake.tables import Tables

PASSING = (SessionlakeError, PySparkException, Py4JJavaError, OSError)
"""What a look may end with while tables are made, replaced or removed; the next one may succeed."""
_TABLES = (
    schemas.CHANGELOG,
    schemas.SESSIONS,
    schemas.LATE_EVENTS,
    schemas.DEAD_LETTERS,
    schemas.CORRECTIONS,
    schemas.EVENTS,
    schemas.BATCHES,
    schemas.JOB_RUNS,
    schemas.QUALITY_RESULTS,
)
Found = TypeVar("Found")


class Watch(Generic[Found]):
    """The latest of what `read` returns; it is called again where a table has a new version."""

    def __init__(self, spark: SparkSession, config: Config, read: Callable[[SparkSession, Config], Found]) -> None:
        self._spark, self._config, self._read = spark, config, read
        self._tables = Tables(spark, config.pipeline.warehouse)
        self._seen: tuple[dict[str, int], Found] | None = None
        self.reads = 0

    def look(self) -> Found:
        """Return what was read at the tables' present versions; raises one of PASSING, and then reads anew the next time."""
        versions = {name: self._tables.latest_version(name) for name in _TABLES}
        if self._seen is None or self._seen[0] != versions:
            self._seen = None
            found = self._read(self._spark, self._config)
            self.reads += 1
            self._seen = (versions, found)
        return self._seen[1]


def one_line(error: BaseException) -> str:
    """Return an error's first line: Spark's and Java's have a stack trace below."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def pause_until(moment: float) -> None:
    """Sleep until a moment of the monotonic clock; not at all where it is past."""
    time.sleep(max(0.0, moment - time.monotonic()))
