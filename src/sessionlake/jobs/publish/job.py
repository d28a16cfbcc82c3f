"""Sessions or windows to a compacted Kafka topic: one record each, replaced with each change, removed when they are."""

from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.config.source import KafkaSink
from sessionlake.errors import ConfigError, NoBatchesError
from sessionlake.jobs.publish.changes import from_version, pin_version, publish_changes
from sessionlake.jobs.publish.final import publish_final
from sessionlake.jobs.publish.records import OnBatch, topic_of
from sessionlake.warehouse.batches import changelogs_in, check_history
from sessionlake.warehouse.tables import Tables

_ID_LENGTH = 22


@dataclass(frozen=True)
class Published:
    """The counts of a run."""

    batches: int
    from_the_beginning: bool
    """Whether the run began by publishing all there was."""


def publish(
    spark: SparkSession, config: Config, *, once: bool = False, on_batch: OnBatch = lambda *_: None
) -> Published:
    """Publish all sessions or windows at the first start, and from then on changes, until stopped or, with `once`, up to now.

    At least once: after a crash records are sent again. A reader may for a moment see an older state, until the newer
    one is sent again. A topic that was recreated gets all rows again. With emit = "final" each row is sent when it
    closes, and again only if it changes after that.
    """
    sink = sink_of(config)
    tables = Tables.of(spark, config)
    of = tables.changelog
    if not tables[of.changes].exists():
        raise NoBatchesError(
            f"pipeline.warehouse: {config.pipeline.warehouse!r} has no {of.snapshot} yet; run `sessionlake run` first"
        )
    check_history(tables, changelogs_in(tables))
    if not {*of.key_columns} <= {*tables[of.changes].read().columns}:
        # The records of such a table, of 0.2, go on with the key that they have.
        tables = tables.seen_by(replace(of, key_columns=()))
    topic = topic_of(spark, sink)
    checkpoint = f"{_checkpoints(config)}/{sink.topic}-{topic.id}"
    pin_version(tables, checkpoint)
    follow = publish_final if config.publishes_final else publish_changes
    return Published(*follow(tables, config, sink, checkpoint, once=once, on_batch=on_batch))


def newest_checkpoint(tables: Tables, config: Config) -> str | None:
    """Return the checkpoint with which the config's topic, as it was made last, is published; None if it never was."""
    sink, root = config.sink.kafka, _checkpoints(config)
    if sink is None:
        return None
    of_topic = [n for n in tables.names(root) if n[:-_ID_LENGTH] == f"{sink.topic}-"]
    return max((f"{root}/{n}" for n in of_topic), key=partial(from_version, tables), default=None)


def _checkpoints(config: Config) -> str:
    return f"{config.checkpoint}-publish"


def sink_of(config: Config) -> KafkaSink:
    """Return the topic to publish to; ConfigError if there is none."""
    if config.sink.kafka is None:
        raise ConfigError("sink.kafka: is missing; add [sink.kafka] with bootstrap_servers and topic")
    if config.sink.kafka.topic in config.topics:
        raise ConfigError(f"sink.kafka.topic: {config.sink.kafka.topic!r} is the source's topic; write another one")
    return config.sink.kafka
