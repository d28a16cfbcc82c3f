"""Sessions to a compacted Kafka topic: one record a session, replaced with each change, removed with the session."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.batches import check_history
from sessionlake.config.load import Config
from sessionlake.config.source import KafkaSink, option_texts
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError, PipelineStateError
from sessionlake.sources import kafka_cluster as kafka
from sessionlake.stream.queries import is_second_driver, run_to_end
from sessionlake.views import CHANGE_COUNT, changes, latest_changes, merged_sessions
from sessionlake.warehouse.tables import Tables

_FIRST = (*schemas.IDENTITY, "session_end", "session_id", "event_count", "revision")
_HIDDEN = ("state", "session_date", "op", "commit_id", "batch_id", CHANGE_COUNT)
# To the microsecond: cut to milliseconds, as to_json does by itself, two sessions of a key could be one.
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX", "ignoreNullFields": "false"}
_GONE = (
    "FILE_NOT_EXIST",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_VERSION_NOT_FOUND",
)
_FROM_VERSION = "from_version"
_ID_LENGTH = 22
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
    check_history(tables)
    topic = _topic(spark, sink)
    checkpoint = f"{_checkpoints(config)}/{sink.topic}-{topic.id}"
    batches = 0
    first = not tables.names(f"{checkpoint}/stream/offsets")
    # Pinned before the sessions are read, and once only: what is deleted between two attempts of the first publication
    # must come in the stream, since no later one names it.
    tables.write_text_once(f"{checkpoint}/{_FROM_VERSION}", str(tables.latest_version(schemas.CHANGELOG)))
    version = from_version(tables, checkpoint)
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
        if any(sign in text for sign in _GONE):
            raise PipelineStateError(
                f"publish: changes that were not read yet are gone from {schemas.CHANGELOG!r}; delete {checkpoint!r} to start with all "
                "sessions, and make a new topic, in which those deleted meanwhile are not"
            ) from error
        raise kafka.explained(text, "sink.kafka") or error from error
    return Published(batches, first)


def newest_checkpoint(tables: Tables, config: Config) -> str | None:
    """Return the checkpoint with which the config's topic, as it was made last, is published; None where it never was."""
    sink, root = config.sink.kafka, _checkpoints(config)
    if sink is None:
        return None
    of_topic = [n for n in tables.names(root) if n[:-_ID_LENGTH] == f"{sink.topic}-"]
    return max((f"{root}/{n}" for n in of_topic), key=partial(from_version, tables), default=None)


def _checkpoints(config: Config) -> str:
    return f"{config.checkpoint}-publish"


def from_version(tables: Tables, checkpoint: str) -> int:
    """Return the version of the changelog with which a checkpoint's stream begins."""
    text = tables.read_text(f"{checkpoint}/{_FROM_VERSION}")
    if text is None:
        raise PipelineStateError(
            f"publish: {checkpoint!r} lacks its file {_FROM_VERSION}; delete the folder to start with all sessions"
        )
    return int(text)


def to_records(sessions: DataFrame) -> DataFrame:
    """Return sessions (with op) as records: key and value are JSON, the value null where the session is deleted."""
    columns = [*_FIRST, *(c for c in sessions.columns if c not in (*_FIRST, *_HIDDEN))]
    value = F.when(F.col("op") != "delete", F.to_json(F.struct(*columns), _JSON))
    return sessions.select(F.to_json(F.struct(*schemas.IDENTITY), _JSON).alias("key"), value.alias("value"))


def _send(sessions: DataFrame, sink: KafkaSink) -> None:
    _cluster(sink).write(to_records(sessions), sink.topic)


def _cluster(sink: KafkaSink) -> kafka.Cluster:
    return kafka.Cluster("sink.kafka", sink.bootstrap_servers, option_texts(sink.options))


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
    cluster = _cluster(sink)
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
