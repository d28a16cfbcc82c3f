"""Sessions to a compacted Kafka topic: one record a session, replaced with each change, removed with the session."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake import kafka, schemas
from sessionlake.config import Config
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError, PipelineStateError
from sessionlake.jobs.streams import is_second_driver, run_to_end
from sessionlake.source_config import KafkaSink, option_texts
from sessionlake.tables import Tables
from sessionlake.views import changes, latest_changes, merged_sessions

_FIRST = (*schemas.IDENTITY, "session_end", "session_id", "event_count", "revision")
_HIDDEN = ("state", "session_date", "op", "commit_id", "batch_id", "changes")
# To the microsecond: cut to milliseconds, as to_json does by itself, two sessions of a key could be one.
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX", "ignoreNullFields": "false"}
_log = logging.getLogger("sessionlake")

OnBatch = Callable[[int, bool], None]
"""Called after each batch with its number and whether it was all sessions there were at the first start."""


@dataclass(frozen=True)
class Published:
    """What a run published."""

    batches: int
    from_the_beginning: bool
    """Whether the run began by publishing every session."""


def publish(spark: SparkSession, config: Config, *, once: bool = False, on_batch: OnBatch | None = None) -> Published:
    """Publish all sessions at the first start, from then on what changes; until stopped or, with `once`, up to now.

    At least once: after a crash records are sent again, and a reader may for a moment see an older state of a session,
    which the newer one, sent again too, replaces. A topic that is made anew gets every session again.
    """
    sink = _sink(config)
    tables = Tables(spark, config.pipeline.warehouse)
    if tables.latest_version(schemas.CHANGELOG) < 0:
        raise PipelineStateError(
            f"pipeline.warehouse: {config.pipeline.warehouse!r} has no sessions yet; run `sessionlake run` first"
        )
    topic = _topic(spark, sink)
    checkpoint = f"{config.checkpoint}-publish/{sink.topic}-{topic.id}"
    batches = 0
    first = not tables.names(f"{checkpoint}/stream/offsets")
    # Pinned before the sessions are read, and once only: what is deleted between two attempts of the first publication
    # must come in the stream, since no later one names it.
    tables.write_text_once(f"{checkpoint}/from_version", str(tables.latest_version(schemas.CHANGELOG)))
    version = int(tables.read_text(f"{checkpoint}/from_version") or 0)
    if first:
        _send(merged_sessions(tables).withColumn("op", F.lit("upsert")), sink)
        failpoints.hit("published_all")
        batches += 1
        if on_batch is not None:
            on_batch(batches, True)

    def send(rows: DataFrame, _batch_id: int) -> None:
        nonlocal batches
        _send(latest_changes(changes(rows, after=-1)), sink)
        failpoints.hit("published")
        batches += 1
        if on_batch is not None:
            on_batch(batches, False)

    changelog = (
        spark.readStream.format("delta")
        .option("startingVersion", version)
        # What maintenance rewrites or trims has been published before.
        .option("skipChangeCommits", "true")
        .load(tables.path(schemas.CHANGELOG))
    )
    writer = (
        changelog.writeStream.foreachBatch(send)
        .option("checkpointLocation", f"{checkpoint}/stream")
        .queryName(f"{config.pipeline.name}-publish")
    )
    try:
        run_to_end(config, writer, once=once)
    except StreamingQueryException as error:
        text = str(error)
        if is_second_driver(text):
            raise PipelineStateError("publish: another process publishes to this topic; stop it first") from error
        raise kafka.explained(text, "sink.kafka") or error from error
    return Published(batches, first)


def to_records(sessions: DataFrame) -> DataFrame:
    """Return sessions (with op) as records: key and value are JSON, the value null where the session is deleted."""
    columns = [*_FIRST, *(c for c in sessions.columns if c not in (*_FIRST, *_HIDDEN))]
    value = F.when(F.col("op") != "delete", F.to_json(F.struct(*columns), _JSON))
    return sessions.select(F.to_json(F.struct(*schemas.IDENTITY), _JSON).alias("key"), value.alias("value"))


def _send(sessions: DataFrame, sink: KafkaSink) -> None:
    options = {**option_texts(sink.options), "kafka.bootstrap.servers": sink.bootstrap_servers, "topic": sink.topic}
    try:
        to_records(sessions).write.format("kafka").options(**options).save()
    except Exception as error:
        cause = kafka.explained(str(error), "sink.kafka")
        if cause is None:
            raise
        raise cause from error


def _sink(config: Config) -> KafkaSink:
    if config.sink.kafka is None:
        raise ConfigError("sink.kafka: is missing; add [sink.kafka] with bootstrap_servers and topic")
    if config.session.emit == "final":
        raise ConfigError(
            "session.emit: 'final' can't be published, for no change tells that a session is closed; write 'update'"
        )
    if config.sink.kafka.topic == config.source.topic:
        raise ConfigError(f"sink.kafka.topic: {config.source.topic!r} is the source's topic; write another one")
    return config.sink.kafka


def _topic(spark: SparkSession, sink: KafkaSink) -> kafka.Topic:
    """Return the topic; a missing one is created, compacted."""
    cluster = kafka.Cluster("sink.kafka", sink.bootstrap_servers, option_texts(sink.options))
    try:
        topic = cluster.describe(spark, sink.topic)
    except kafka.MissingTopicError:
        cluster.create_compacted(spark, sink.topic)
        topic = cluster.describe(spark, sink.topic)
    if topic.cleanup_policy and not topic.compacted:
        _log.warning(
            "sessionlake: warning: sink.kafka.topic: %r has cleanup.policy=%s: sessions that don't change for long go missing; "
            "set cleanup.policy=compact",
            sink.topic,
            topic.cleanup_policy,
        )
    return topic
