"""Sessions or windows as records of a compacted topic, and the topic that takes them."""

import logging
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.source import KafkaSink, option_texts
from sessionlake.sources import kafka_cluster as kafka
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.spark_columns import columns as columns_of
from sessionlake.warehouse.views import CHANGE_COUNT

_HIDDEN = ("state", "op", "commit_id", "batch_id", CHANGE_COUNT)
JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX", "ignoreNullFields": "false"}
"""The form of values. Times are to the microsecond: cut to milliseconds, as to_json does by itself, two rows of a key could have the same key."""
_log = logging.getLogger("sessionlake")

OnBatch = Callable[[int, bool], None]
"""Called after each time that records were sent: how often so far, and whether it was the first of the topic's."""
OnTurn = Callable[[], None]
"""Called about every second: the place for other work."""


def to_records(rows: DataFrame, of: Changelog) -> DataFrame:
    """Return rows (with op) as records: key and value are JSON, the value null if the row is deleted."""
    identity = of.named_identity
    named = dict.fromkeys((*identity, of.end, of.id, "event_count", "revision"))
    first = [name for name in named if name in rows.columns]
    columns = [*first, *(c for c in rows.columns if c not in (*first, of.date, *of.hidden, *_HIDDEN))]
    of_value, of_key = (F.struct(*columns_of(names)) for names in (columns, identity))
    value = F.when(F.col("op") != "delete", F.to_json(of_value, JSON))
    return rows.select(F.to_json(of_key, JSON).alias("key"), value.alias("value"))


def without_quarantined(rows: DataFrame, config: Config) -> DataFrame:
    """Return rows (with op) in which a session in quarantine is deleted: a topic that has it shall have it no more."""
    rule = config.quarantined_sql(SPARK.micros)
    if rule is None:
        return rows
    return rows.withColumn("op", F.when(F.expr(f"{rule} is not null"), F.lit("delete")).otherwise(F.col("op")))


def send(rows: DataFrame, of: Changelog, sink: KafkaSink) -> None:
    """Send rows (with op) to the topic."""
    cluster_of(sink).write(to_records(rows, of), sink.topic)


def cluster_of(sink: KafkaSink) -> kafka.Cluster:
    """Return the cluster that a sink's topics are on."""
    return kafka.Cluster("sink.kafka", sink.bootstrap_servers, option_texts(sink.options))


def made_topic(spark: SparkSession, cluster: kafka.Cluster, name: str, settings: Mapping[str, str]) -> kafka.Topic:
    """Return a topic; a missing one is created with these settings."""
    try:
        return cluster.describe(spark, name)
    except kafka.MissingTopicError:
        cluster.create(spark, name, settings)
        return cluster.describe(spark, name)


def results_topic(spark: SparkSession, sink: KafkaSink) -> kafka.Topic:
    """Return the topic; a missing one is created, compacted."""
    return made_topic(spark, cluster_of(sink), sink.topic, {"cleanup.policy": "compact"})


def topic_of(spark: SparkSession, sink: KafkaSink) -> kafka.Topic:
    """Return the same, and warn of a topic that is not compacted."""
    topic = results_topic(spark, sink)
    if topic.cleanup_policy and not topic.compacted:
        _log.warning(
            "sessionlake: warning: sink.kafka.topic: %r has cleanup.policy=%s: what does not change for long goes missing; "
            "set cleanup.policy=compact",
            sink.topic,
            topic.cleanup_policy,
        )
    return topic
