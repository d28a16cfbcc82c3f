"""Pattern 7 to the letter: tombstones sent to the topic that the events come from."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.source import option_texts
from sessionlake.errors import ConfigError
from sessionlake.sources.decoding.kafka_records import HEADERS
from sessionlake.sources.kafka_cluster import Cluster


def require_topic(spark: SparkSession, config: Config) -> None:
    """Raise ConfigError unless the events come from a topic whose tombstones are read, SourceError where that can't be reached or is missing."""
    if config.session is None:
        raise ConfigError(
            f"--to-topic: tombstones in a topic are of sessions, and this pipeline computes {config.operator}s; leave the option out"
        )
    if config.source.kind != "kafka":
        raise ConfigError(
            f"--to-topic: source.kind is {config.source.kind!r}, there is no topic to send tombstones to; leave the option out"
        )
    if not config.source.tombstones:
        raise ConfigError(
            "--to-topic: source.tombstones is false, so that the stream would refuse them; write `tombstones = true` in [source], or leave the option out"
        )
    _cluster(config).describe(spark, config.source.topic or "")


def send_tombstones(config: Config, tombstones: DataFrame) -> None:
    """Produce a record for each tombstone (correction_id, session_key, session_start, revision): key, no value, headers.

    At least once: of a tombstone that arrives twice the second is stale, which the sessionizer counts and else ignores.
    SourceError where Kafka is the cause of a failure.
    """
    values = {
        "key": F.col("session_key"),
        "start": F.unix_micros("session_start").cast("string"),
        "revision": F.col("revision").cast("string"),
        "correction": F.col("correction_id"),
    }
    headers = [
        F.struct(F.lit(HEADERS[name]).alias("key"), value.cast("binary").alias("value"))
        for name, value in values.items()
    ]
    records = tombstones.select(
        F.col("session_key").cast("binary").alias("key"),
        F.lit(None).cast("binary").alias("value"),
        F.array(*headers).alias("headers"),
    )
    _cluster(config).write(records, config.source.topic or "")


def _cluster(config: Config) -> Cluster:
    source = config.source
    return Cluster("source", source.bootstrap_servers or "", option_texts(source.options))
