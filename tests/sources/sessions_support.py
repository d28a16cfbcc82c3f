"""Sessions of a pipeline that reads a topic."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.reading import read_sessions


def sessions(spark: SparkSession, config: Config) -> list[tuple[str, int, int, int, int]]:
    times = (F.unix_seconds("session_start").alias("s"), F.unix_seconds("session_end").alias("e"))
    found = read_sessions(spark, config).select("session_key", *times, "event_count", "total")
    return sorted(tuple(row) for row in found.collect())
