"""Late events and dead letters of committed batches to a topic, batch by batch, each at least once (rule 333)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.source import KafkaSink
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError
from sessionlake.jobs.publish.records import JSON, cluster_of, made_topic
from sessionlake.jobs.publish.steps import Progress, Step
from sessionlake.jobs.publish.transactions import Transactions
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.spark_columns import columns as columns_of
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.topic_position import published_in

ERRORS = "errors"
TABLES = (schemas.LATE_EVENTS, schemas.DEAD_LETTERS)
MOST_BYTES, _MOST_KEY_BYTES = 900_000, 100_000
"""The size of a record's value and of its key: by default Kafka takes no record of more than a mebibyte."""
_SHORT = ("reason", "kind", "event_time", "source", "close_time", "batch_id")
"""The columns of a record that would be larger with all of them."""


@dataclass
class ErrorsTopic:
    """The topic of a pipeline's config, and the tables whose rows it gets."""

    tables: Tables
    config: Config
    sink: KafkaSink
    topic: str
    _at: str | None = field(default=None, init=False)
    """The commit up to which this process has sent rows: without a newer commit the topic is not asked for."""

    @property
    def every(self) -> str:
        """The least time between two steps."""
        return "1 second"

    def step(self, *, anew: bool = False) -> Step | None:
        """Send the rows of the batches after the last step; None if there is no such batch."""
        last = last_batch(self.tables)
        if self._at == last.commit_id and not anew:
            return None
        ours = {"checkpoint_id": last.checkpoint_id, "topic_id": self._topic_id()}
        before = -1 if anew else self._reached(ours)
        sent = None
        if last.batch_id > before:
            late, dead = (self._records(name, before, last.batch_id) for name in TABLES)
            failpoints.hit("errors_read")
            sent = Step(last.batch_id, self._sent(late.unionAll(dead), last.batch_id, ours))
        self._at = last.commit_id
        return sent

    def _reached(self, ours: Mapping[str, str]) -> int:
        """Return the last batch whose rows the topic has; -1 if there is none. `ours` names the pipeline's tables and the topic."""
        if self.sink.transactions:
            found = self._transactions.position()
            return int(found["batch_id"]) if found and ours.items() <= found.items() else -1
        text = self._progress(ours).read()
        return -1 if text is None else int(json.loads(text)["batch_id"])

    def _sent(self, records: DataFrame, batch_id: int, ours: Mapping[str, str]) -> int:
        """Send records, and record the batch that they lead to; return how many there are."""
        if self.sink.transactions:
            return sum(self._transactions.send(records, {"batch_id": batch_id, **ours}, at="errors"))
        count = records.count()
        if count:
            cluster_of(self.sink).write(records, self.topic)
        failpoints.hit("errors_sent")
        self._progress(ours).write(batch_id, json.dumps({"batch_id": batch_id}))
        return count

    def _records(self, name: str, after: int, until: int) -> DataFrame:
        """Return rows of a table as records: the event's key, and a JSON object of the table's name and its columns."""
        rows = self.tables[name].read().where((F.col("batch_id") > after) & (F.col("batch_id") <= until))
        columns = [column for column in rows.columns if column != "commit_id"]
        whole = self._value(name, columns)
        short = self._value(name, [column for column in columns if column in _SHORT], cut=True)
        key = F.when(F.octet_length("key") <= _MOST_KEY_BYTES, F.col("key"))
        value = F.when(F.octet_length(whole) <= MOST_BYTES, whole).otherwise(short)
        return rows.select(key.alias("key"), value.alias("value"))

    @staticmethod
    def _value(name: str, columns: list[str], *, cut: bool = False) -> Column:
        first = [F.lit(name).alias("table_name"), *([F.lit(True).alias("cut")] if cut else [])]
        return F.to_json(F.struct(*first, *columns_of(columns)), JSON)

    @cached_property
    def _transactions(self) -> Transactions:
        return Transactions(self.tables.spark, self.config.pipeline.name, self.sink, self.topic)

    def _progress(self, ours: Mapping[str, str]) -> Progress:
        return Progress(self.tables, f"{published_in(self.config)}/{ERRORS}/{self.topic}-{ours['topic_id']}")

    def _topic_id(self) -> str:
        """Return the topic's id; a missing topic is created. A topic that is recreated gets all rows."""
        topic = made_topic(self.tables.spark, cluster_of(self.sink), self.topic, {})
        if topic.compacted:
            raise ConfigError(
                f"sink.kafka.errors: {self.topic!r} is compacted, and a dead letter may have no key; set its cleanup.policy to delete, or write another topic"
            )
        return topic.id
