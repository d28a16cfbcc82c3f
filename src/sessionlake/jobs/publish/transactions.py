"""Topics whose readers see each step once: records and the sink's position in one transaction of Kafka (rule 336)."""

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.source import TOPIC, KafkaSink
from sessionlake.engine import failpoints
from sessionlake.errors import FencedError, PipelineStateError, SessionlakeError, SourceError
from sessionlake.jobs.publish.records import cluster_of, made_topic, results_topic, to_records, topic_of
from sessionlake.jobs.publish.results import Results, is_gone
from sessionlake.jobs.publish.steps import Progress, Step
from sessionlake.sources import kafka_cluster as kafka
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.changelog import SIGN
from sessionlake.warehouse.seen import Visible
from sessionlake.warehouse.sink_position import RESYNC, Position
from sessionlake.warehouse.spark_columns import columns
from sessionlake.warehouse.streamed_files import are_gone
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.topic_position import TRANSACTIONS, published_in

POSITIONS = ".position"
"""The suffix of the topic with a topic's positions. Each topic has its own: in a shared topic an open transaction would hide the other topic's positions."""
_FENCED = ("ProducerFenced", "InvalidProducerEpoch")
_TIMEOUT, _LONGEST_MS = "transaction.timeout.ms", 900_000
"""A transaction may take as long as a broker takes by default: all rows may be in one."""
_WRONG_OPTION = re.compile(r"ConfigException: (\S.*)")
_MEANT = {
    "transaction timeout is larger": "sink.kafka.options: the broker takes no transaction that may last 15 minutes; set kafka.transaction.timeout.ms to its transaction.max.timeout.ms",
    "max.request.size": "sink.kafka: a record is larger than is sent; raise kafka.max.request.size in sink.kafka.options",
    "InvalidPidMapping": "sink.kafka: the broker has forgotten this producer, which was idle for long; start again",
}
"""Signs in Java's messages, and the errors that they mean."""
_TOPIC_ID = "topic_id"
_log = logging.getLogger("sessionlake")
_T = TypeVar("_T")


@dataclass
class Transactions:
    """The transactions by which a pipeline sends records to a topic."""

    spark: SparkSession
    pipeline: str
    sink: KafkaSink
    topic: str
    _java: Any = field(default=None, init=False)
    _begun: float | None = field(default=None, init=False)
    _position: str | None = field(default=None, init=False)
    """That of the last transaction, as long as no other process can send."""

    @property
    def is_known(self) -> bool:
        """Whether the position is known, so that no other process has sent since it was read."""
        return self._java is not None and self._position is not None

    def position(self) -> dict[str, Any] | None:
        """Return the position that was committed last; None if none was. From here on no other process can send."""
        if not self.is_known:
            self._position = self._called(lambda java: java.position())
        return json.loads(self._position) if self._position else None

    def send(self, records: DataFrame, position: Mapping[str, Any], *, at: str) -> tuple[int, int]:
        """Send records (key and value, text) and the position; return how many have a value, and how many have none."""
        bytes_ = records.select(*(F.col(name).cast("binary").alias(name) for name in ("key", "value")))

        text = json.dumps(position)

        def sent(java: Any) -> tuple[int, int]:
            java.begin()
            self._begun = time.monotonic()
            puts, deletes = java.send(bytes_._jdf)
            failpoints.hit(f"{at}_sent")
            java.commit(text)
            self._position, self._begun = text, None
            failpoints.hit(f"{at}_committed")
            return puts, deletes

        return self._called(sent)

    def _called(self, work: Callable[[Any], _T]) -> _T:
        """Work with the producer, which is of no use any more after an error."""
        with self._explained():
            if self._java is None:
                self._java = self._made()
            try:
                return work(self._java)
            except BaseException:
                java, self._java = self._java, None
                java.close()
                raise

    def _made(self) -> Any:
        jvm: Any = self.spark._jvm
        cluster, self._begun = cluster_of(self.sink), None
        made_topic(self.spark, cluster, self.topic + POSITIONS, {"cleanup.policy": "compact"})
        given = {name.removeprefix("kafka."): value for name, value in cluster.client_options.items()}
        settings = {_TIMEOUT: str(_LONGEST_MS), **given, "bootstrap.servers": cluster.servers}
        id_ = f"sessionlake.{self.pipeline}/{self.topic}"
        return jvm.sessionlake.kafka.Transactions(settings, id_, self.topic, self.topic + POSITIONS)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            raise self._error(str(error)) or error from error

    def _error(self, told: str) -> SessionlakeError | None:
        """Return the error for a user that Java's message means."""
        fenced = any(sign in told for sign in _FENCED)
        if fenced and self._begun is not None and time.monotonic() - self._begun >= self._timeout_s:
            return SourceError(
                f"sink.kafka: a transaction took longer than {self._timeout_s:.0f} s, and the broker ended it; raise kafka.{_TIMEOUT} in sink.kafka.options, "
                "and the broker's transaction.max.timeout.ms if that is less"
            )
        if fenced:
            return FencedError(
                f"publish: another process publishes to {self.topic!r} too; this one stops, keep only one running"
            )
        if (wrong := _WRONG_OPTION.search(told)) is not None:
            return SourceError(f"sink.kafka.options: {wrong[1]}; correct the options")
        meant = next((message for sign, message in _MEANT.items() if sign in told), None)
        return kafka.explained(told, "sink.kafka") if meant is None else SourceError(meant)

    @property
    def _timeout_s(self) -> float:
        given = cluster_of(self.sink).client_options.get(f"kafka.{_TIMEOUT}", _LONGEST_MS)
        return int(given) / 1000


@dataclass(frozen=True)
class TransactionalTopic:
    """The topic of [sink.kafka] with `transactions = true`, and the tables whose rows it gets."""

    tables: Tables
    config: Config
    sink: KafkaSink

    @property
    def every(self) -> str:
        """The least time between two steps."""
        return "1 second"

    def step(self, *, anew: bool = False) -> Step | None:
        """Send the rows by which the last batch differs from that of the last step; None if there is none.

        With `anew` all rows are sent, and rows that are gone are deleted in the topic.
        """
        last, was_known = last_batch(self.tables), self._transactions.is_known
        found = self._transactions.position()
        if was_known and found is not None and not anew and _is_at(found, last):
            return None
        # Asked for each step: a topic may be made again while the process runs.
        id_ = self._topic_id(tells=not was_known)
        told = None if found is None or found.pop(_TOPIC_ID) != id_ else found
        before = None if told is None else Position.read(told)
        if before is not None and not anew:
            self._noted(before)
            before.require_same(self.config, self.tables, last, TOPIC, self.sink.topic)
            return None if before.seen.batch_id == last.batch_id else self._changed(before, last, id_)
        if before is None and not anew and not self._in_topic().isEmpty():
            raise PipelineStateError(
                f"sink.kafka: {self.sink.topic!r} has records, and no transaction of this pipeline; {RESYNC}, which deletes rows that are gone, or write another topic"
            )
        return self._all(before, last, id_, anew=anew)

    def _changed(self, before: Position, last: BatchCommit, id_: str) -> Step:
        now = Position.after(before, self.config, last, sink=TOPIC)
        try:
            records = self._records(before, now)
        except Exception as error:
            if not is_gone(error):
                raise
            return self._again(before, last, id_)
        try:
            return Step(last.batch_id, *self._sent(records, now, id_))
        except Py4JJavaError as error:
            # Kafka's errors are reported by `Transactions`: these are Spark's.
            if not are_gone(str(error)):
                raise
            return self._again(before, last, id_)

    def _again(self, before: Position, last: BatchCommit, id_: str) -> Step:
        _log.warning(
            "sink.kafka: changes since batch %d are gone from the tables, so all rows are sent again",
            before.seen.batch_id,
        )
        return self._all(before, last, id_, anew=False)

    def _all(self, before: Position | None, last: BatchCommit, id_: str, *, anew: bool) -> Step:
        """Send all rows, and delete the others that the topic has."""
        now = Position.after(before, self.config, last, anew=anew, sink=TOPIC)
        records = self._records(None, now)
        there = self._in_topic()
        if not there.isEmpty():
            others = there.join(records.select("key"), "key", "left_anti")
            records = records.unionByName(others.select("key", F.lit(None).cast("string").alias("value")))
        self._sent(records, now, id_)
        return Step(last.batch_id, None)

    def _records(self, before: Position | None, now: Position) -> DataFrame:
        rows = self._results.latest(None if before is None else before.seen, now.seen)
        op = F.when(F.col(SIGN) > 0, "upsert").otherwise("delete")
        names = columns(field.name for field in self._results.fields(now.seen))
        return to_records(rows.select(*names, op.alias("op")), self.tables.changelog)

    def _in_topic(self) -> DataFrame:
        """Return the keys of the topic's rows, text."""
        cluster = cluster_of(self.sink)
        options = {
            **cluster.client_options,
            "kafka.bootstrap.servers": cluster.servers,
            "kafka.isolation.level": "read_committed",
            "subscribe": self.sink.topic,
        }
        records = self.tables.spark.read.format("kafka").options(**options).load()
        # A key may be in several partitions, if there were fewer before.
        newest = records.groupBy("key", "partition").agg(F.max_by(F.col("value").isNotNull(), "offset").alias("there"))
        return newest.where("there").select(F.col("key").cast("string").alias("key")).distinct()

    def _sent(self, records: DataFrame, now: Position, id_: str) -> tuple[int, int]:
        sent = self._transactions.send(records, {**now.values(), _TOPIC_ID: id_}, at="transaction")
        self._noted(now)
        return sent

    def _noted(self, now: Position) -> None:
        """Note the position for the stream's `max_lag`. Killed before it, the next step notes it."""
        progress = _notes(self.tables, self.config)
        before = json.loads(progress.read() or '{"number": 0}')
        if before.get("attempt") != now.attempt:
            # Not the step's number, which begins anew with a new topic.
            note = {"number": before["number"] + 1, "attempt": now.attempt, "version": now.seen.version}
            progress.write(note["number"], json.dumps(note))

    @cached_property
    def _results(self) -> Results:
        return Results(self.tables, self.config, TOPIC)

    @cached_property
    def _transactions(self) -> Transactions:
        return Transactions(self.tables.spark, self.config.pipeline.name, self.sink, self.sink.topic)

    def _topic_id(self, *, tells: bool) -> str:
        """Return the topic's id; a missing topic is created. A topic that is recreated has another id. `tells` warns of the topic's settings."""
        spark = self.tables.spark
        return (topic_of(spark, self.sink) if tells else results_topic(spark, self.sink)).id


def _is_at(found: Mapping[str, Any], last: BatchCommit) -> bool:
    """Say whether a position is that of a batch."""
    seen = Visible.read(found["seen"])
    return found["checkpoint_id"] == last.checkpoint_id and seen.commit_id == last.commit_id


def forget_position(spark: SparkSession, sink: KafkaSink) -> None:
    """Tell who sends in transactions later that others have sent records since; if there are positions."""
    cluster = cluster_of(sink)
    try:
        cluster.describe(spark, sink.topic + POSITIONS)
    except kafka.MissingTopicError:
        return
    told = spark.createDataFrame([(sink.topic.encode(), None, 0)], "key binary, value binary, partition int")
    cluster.write(told, sink.topic + POSITIONS)


def _notes(tables: Tables, config: Config) -> Progress:
    return Progress(tables, f"{published_in(config)}/{TRANSACTIONS}")
