"""Tombstones sent to the topic that the events come from: of sessions for a job, of expired rows for a stream's driver."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.source import option_texts
from sessionlake.errors import ConfigError
from sessionlake.operators.keyed.section import TableSection
from sessionlake.sources.decoding.kafka_records import HEADERS
from sessionlake.sources.kafka_cluster import Cluster
from sessionlake.sources.record_columns import KEY as RECORD_KEY
from sessionlake.warehouse.changelog import CAUSE, TABLE


def require_topic(spark: SparkSession, config: Config) -> None:
    """Raise ConfigError unless the events come from a topic whose tombstones are read, SourceError where that can't be reached or is missing."""
    keyed = isinstance(config.section, TableSection)
    if config.session is None and not keyed:
        raise ConfigError(
            f"--to-topic: tombstones in a topic are of sessions or of a table's rows, and this pipeline computes {config.operator}s; leave the option out"
        )
    if config.source.kind != "kafka":
        raise ConfigError(
            f"--to-topic: source.kind is {config.source.kind!r}, there is no topic to send tombstones to; leave the option out"
        )
    if not config.source.tombstones:
        raise ConfigError(
            "--to-topic: source.tombstones is false, so that the stream would refuse them; write `tombstones = true` in [source], or leave the option out"
        )
    if keyed and config.event.key != RECORD_KEY:
        raise ConfigError(
            f"--to-topic: tombstones are records with the rows' keys, and event.key is {config.event.key!r}; write event.key = '{RECORD_KEY}', or leave the option out"
        )
    source_cluster(config).describe(spark, config.source.topic or "")


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
    _send(config, tombstones, "session_key", values)


def send_expiries(config: Config, rows: DataFrame) -> None:
    """Produce a record for each change of a keyed table by which a row has expired: the row's key, no value, headers.

    To the partition that the row's record is in, whatever its producer chose it by. SourceError as above.
    """
    values = {
        "key": F.col(TABLE.key),
        "revision": F.col("revision").cast("string"),
        "offset": F.col("event_offset").cast("string"),
        "cause": F.col(CAUSE),
    }
    _send(config, rows, TABLE.key, values, F.col("event_partition").cast("int").alias("partition"))


def _send(config: Config, rows: DataFrame, key: str, values: Mapping[str, Column], *more: Column) -> None:
    headers = [
        F.struct(F.lit(HEADERS[name]).alias("key"), value.cast("binary").alias("value"))
        for name, value in values.items()
    ]
    records = rows.select(
        F.col(key).cast("binary").alias("key"),
        F.lit(None).cast("binary").alias("value"),
        F.array(*headers).alias("headers"),
        *more,
    )
    source_cluster(config).write(records, config.source.topic or "")


def source_cluster(config: Config) -> Cluster:
    """Return the cluster of the topic that the events come from."""
    source = config.source
    return Cluster("source", source.bootstrap_servers or "", option_texts(source.options))
