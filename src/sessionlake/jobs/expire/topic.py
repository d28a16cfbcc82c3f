"""Tombstones sent to the topic that the events come from: by a job, or by a stream's driver."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.operators import named
from sessionlake.config.source import option_texts
from sessionlake.errors import ConfigError
from sessionlake.sources.decoding.kafka_records import TOMBSTONE_HEADERS
from sessionlake.sources.kafka_cluster import Cluster
from sessionlake.sources.record_columns import KEY as RECORD_KEY
from sessionlake.stream.capabilities import TopicTombstones


def topic_tombstones(config: Config) -> TopicTombstones | None:
    """Return the operator's capability; None if no tombstones in a topic remove its rows."""
    place = config.entry.topic_tombstones
    found: TopicTombstones | None = None if place is None else named(place)
    return found


def require_topic(spark: SparkSession, config: Config) -> TopicTombstones:
    """Return the operator's capability.

    Raises ConfigError unless the events come from a topic whose tombstones are read, SourceError if that can't be reached or is missing.
    """
    tombstones = topic_tombstones(config)
    if tombstones is None:
        raise ConfigError(
            f"--to-topic: tombstones in a topic are of sessions or of a table's rows, and this pipeline computes {config.operator}s; leave the option out"
        )
    if not config.source.entry.has_topic:
        raise ConfigError(
            f"--to-topic: source.kind is {config.source.kind!r}, there is no topic to send tombstones to; leave the option out"
        )
    if not config.source.tombstones:
        raise ConfigError(
            "--to-topic: source.tombstones is false, so that the stream would refuse them; write `tombstones = true` in [source], or leave the option out"
        )
    if tombstones.of_keys and config.event.key != RECORD_KEY:
        raise ConfigError(
            f"--to-topic: tombstones are records with the rows' keys, and event.key is {config.event.key!r}; write event.key = '{RECORD_KEY}', or leave the option out"
        )
    source_cluster(config).describe(spark, config.source.topic or "")
    return tombstones


def send_tombstones(config: Config, tombstones: TopicTombstones, rows: DataFrame) -> None:
    """Produce a record for each row.

    At least once. SourceError if Kafka is the cause of a failure.
    """
    headers = [
        F.struct(F.lit(TOMBSTONE_HEADERS[name]).alias("key"), value.cast("binary").alias("value"))
        for name, value in tombstones.headers().items()
    ]
    partition = tombstones.partition
    records = rows.select(
        F.col(tombstones.key).cast("binary").alias("key"),
        F.lit(None).cast("binary").alias("value"),
        F.array(*headers).alias("headers"),
        *([] if partition is None else [F.col(partition).cast("int").alias("partition")]),
    )
    source_cluster(config).write(records, config.source.topic or "")


def source_cluster(config: Config) -> Cluster:
    """Return the cluster of the topic that the events come from."""
    source = config.source
    return Cluster("source", source.bootstrap_servers or "", option_texts(source.options))
