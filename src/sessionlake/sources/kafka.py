"""A Kafka topic as a source: its records, its columns, Debezium's envelope (docs/rules.md, rule 320), and warnings about its settings."""

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cached_property, reduce
from operator import getitem, or_
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from sessionlake.column_names import names_of, parts_of, roots_of
from sessionlake.config.load import Config
from sessionlake.config.secrets import reveal, reveal_all
from sessionlake.config.source import SourceSection, option_texts
from sessionlake.errors import JobError, MissingColumnsError, SessionlakeError, SourceError
from sessionlake.sources import avro
from sessionlake.sources import topic_pattern as pattern
from sessionlake.sources.avro import AvroValues, values_of
from sessionlake.sources.base import SMALL_PARTITIONS, SMALL_RECORDS, Offsets, same
from sessionlake.sources.columns import EventColumns, normal_type
from sessionlake.sources.decoding.kafka_records import (
    BODY,
    EVENT,
    KEY_REASON,
    REASON,
    TOMBSTONE,
    TOMBSTONE_HEADERS,
    RecordDecoder,
    Topic,
)
from sessionlake.sources.decoding.nested import nested_schema, type_at
from sessionlake.sources.infer import InferredTypes, declared_and_inferred, infer_values, kinds_of, types_of
from sessionlake.sources.kafka_cluster import Cluster, explained
from sessionlake.sources.partitions import PARTITIONS, slots_of
from sessionlake.sources.record_columns import HEADERS, KEY, OP, SOURCE_TIME, meta_of
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse import spark_names
from sessionlake.warehouse.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ENVELOPE = "op string, before string, after string, source string, payload string"
"""JSON within JSON stays a text. With a schema in each record, the envelope is the payload."""
_TIMES = "ts_ns bigint, ts_us bigint, ts_ms bigint"


def unwrapped(value: "Column") -> "list[Column]":
    """Return a record's row as JSON, in bytes, then the kind of its change, and when the database made it, in microseconds.

    The row is the one after the change, for a delete the one before it; null for records that change no row.
    """
    text = value.cast("string")
    outer = F.from_json(F.when(F.is_valid_utf8(text), text), _ENVELOPE)
    inner = F.from_json(outer["payload"], _ENVELOPE)
    is_payload = F.coalesce(F.startswith(F.ltrim(outer["payload"]), F.lit("{")), F.lit(False))
    field = {
        name: F.when(is_payload, inner[name]).otherwise(outer[name]) for name in ("op", "before", "after", "source")
    }
    op, times = field["op"], F.from_json(field["source"], _TIMES)
    # A delete without a row may still have its key in the record's.
    row = F.when(op.isin("c", "r", "u"), field["after"]).when(op == "d", F.coalesce(field["before"], F.lit("{}")))
    micros = F.try_multiply(times["ts_ms"], F.lit(1000))
    time = F.coalesce(times["ts_us"], F.call_function("div", times["ts_ns"], F.lit(1000)), micros)
    return [row.cast("binary").alias(BODY), op.alias(OP), time.cast("bigint").alias(SOURCE_TIME)]


LOOK_EVERY_S = 60.0
"""How often a running stream looks for topics that are new."""
SAMPLED = 1000
"""Records that column types are learnt from."""
_FIELDS = ("value", "partition", "offset", "timestamp")
_SIMPLE = (pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.binary(), normal_type(pa.timestamp("us")))
_log = logging.getLogger("sessionlake")


class KafkaSource:
    """See `Source` for the methods."""

    name: ClassVar[str] = "kafka"
    one_row_a_file: ClassVar[bool] = False

    def __init__(self, spark: "SparkSession", config: Config, number: int = 0) -> None:
        self._spark, self._config, self._checkpoint, self._number = spark, config, config.checkpoint, number
        self._next_look = time.monotonic() + LOOK_EVERY_S
        self._told = set[str]()

    @cached_property
    def _source(self) -> SourceSection:
        """The section; with a pattern all topics that have ever matched it, in the order of their slots."""
        source = self._config.source
        if source.topic_pattern is None:
            return source
        known = pattern.known_topics(Tables.of(self._spark, self._config), self._checkpoint, self._number)
        return pattern.with_topics(source, known, () if known else self._matching)

    @cached_property
    def _matching(self) -> list[str]:
        """The topics of the cluster that are read; SourceError if none matches the pattern."""
        source = self._config.source
        return (
            pattern.matching(source, self._cluster.topics(self._spark)) if source.topic_pattern else source.topic_names
        )

    @property
    def _cluster(self) -> Cluster:
        source = self._config.source
        return Cluster(source.AT, source.bootstrap_servers or "", option_texts(source.options))

    def check(self) -> None:
        """Raise SourceError if the topic can't be read; warn if it is compacted."""
        self._source = pattern.with_topics(self._source, self._source.topics or (), self._matching)
        for topic, described in self._cluster.described(self._spark, self._matching).items():
            if described.compacted:
                _log.warning(
                    "sessionlake: warning: %s: %r is compacted: Kafka removes events that have a newer record of the same key, "
                    "and all of a key once a tombstone is sent to it; set cleanup.policy=delete for a topic of events",
                    self._source.place_at,
                    topic,
                )

    def watch(self) -> None:
        """Warn, once a minute at most, about topics that match since the start."""
        if self._source.topic_pattern is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_EVERY_S
        with suppress(SessionlakeError):  # a broker that does not answer ends the query
            new = {*self._source.matching(self._cluster.topics(self._spark))} - {*self._matching, *self._told}
            for topic in sorted(new):
                _log.warning(
                    "sessionlake: warning: %s: %r matches now, and is read from the next start on",
                    self._source.place_at,
                    topic,
                )
            self._told |= new

    def grew(self, told: str) -> bool:
        """Return False: a query does not know its columns."""
        del told
        return False

    def explained(self, told: str) -> SourceError | None:
        """Return the error for a failure caused by Kafka."""
        return avro.explained(told, self._source) or explained(told, self._source.AT)

    def columns(self) -> list[str]:
        """Return the columns of the records' values."""
        if self._is_typed:
            return self._values.columns().names
        return list(_sample(self._spark, self._source, self._matching))

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the types that the config declares, or else the Avro schema or the topic's first records have."""
        return declared_and_inferred(
            self._source, needed, lambda names: self._inferred(names, identity), meta_of(self._source)
        )

    def decoder(self, columns: EventColumns) -> RecordDecoder:
        """Return the decoder of the records."""
        return RecordDecoder(columns, topic_of(self._source))

    def stream(self, columns: EventColumns, *, everything_at_once: bool = False) -> "DataFrame":
        """Return each record's columns for workers."""
        options = _options(self._source, self._matching, columns.needed)
        reader = self._spark.readStream.format("kafka").options(**options)
        if not everything_at_once:
            reader = reader.option("maxOffsetsPerTrigger", self._source.max_offsets_per_batch)
        return reader.load().select(*_needed(self._spark, self._source, columns))

    def planned(self, tables: Tables, column: Callable[[str], str] = same) -> None:
        """Return None: Spark reads the planned offsets, or fails. SourceError if one of several topics is not read any more."""
        del column
        if self._source.topics is None:
            return
        if self._source.topic_pattern is not None:
            pattern.keep_topics(tables, self._source, self._checkpoint, self._number)
        # Spark would report lost records. Once it has gone on without them, a restored topic is read from its beginning.
        batches = [int(name) for name in tables.names(f"{self._checkpoint}/offsets") if name.isdigit()]
        text = tables.read_text(f"{self._checkpoint}/offsets/{max(batches)}") if batches else None
        lines = (text or "").splitlines()[2 + self._number :]
        read = json.loads(lines[0]) if lines and lines[0] != "-" else {}
        gone = sorted(read.keys() - {*self._matching})
        if gone and not (self._source.topic_pattern is not None and loses_data(self._source)):
            raise SourceError(
                f"{self._source.place_at}: {gone[0]!r} is not among them any more, and its offsets are in the checkpoint; put it back, or use `sessionlake rebuild`"
            )

    def is_small(self, before: str, planned: str) -> bool:
        """Say whether few offsets lie between the positions."""
        first, last = (json.loads(position) for position in (before, planned))
        ends = {(topic, number): end for topic, offsets in last.items() for number, end in offsets.items()}
        begins = {(topic, number): begin for topic, offsets in first.items() for number, begin in offsets.items()}
        if not ends.keys() <= begins.keys():
            return False  # a partition that is new may have any number of records
        records = [end - begins[at] for at, end in ends.items() if end > begins[at]]
        # A task reads its partitions in turn.
        return sum(records) <= SMALL_RECORDS and len(records) <= SMALL_PARTITIONS

    def versioned(self) -> None:
        """Return None: Spark's positions say all."""
        return

    def ranked(self, tables: Tables) -> None:
        """Return None: a record has its partition and offset."""

    def replay(
        self, tables: Tables, columns: EventColumns, offsets: Offsets, needed: Collection[int]
    ) -> "DataFrame | None":
        """Raise JobError: records may be gone from a topic without a sign of it."""
        del tables, columns, offsets, needed
        raise JobError(f"{self._source.AT}.kind: 'kafka' can't be read again")

    @property
    def _values(self) -> AvroValues:
        return values_of(self._spark, self._source, self._source.format)

    @property
    def _is_typed(self) -> bool:
        """Whether a schema has the values' columns; an envelope's are learnt from records, because its rows become JSON."""
        return self._source.is_binary and self._source.envelope is None

    def _inferred(self, names: list[str], identity: AbstractSet[str]) -> dict[str, pa.DataType]:
        keyed = topic_of(self._source).of_keys(names)
        if not keyed:
            return self._inferred_of_values(names, identity)
        sampled = _sample(self._spark, self._source, self._matching, key=True)
        of_keys = kinds_of_keys(sampled, keyed)
        if missing := [name for name in keyed if name not in of_keys]:
            raise MissingColumnsError(
                f"{self._source.place_at}: keys of {self._source.place!r} have no field {keyed[missing[0]]!r}",
                missing,
                [f"{KEY}.{name}" for name in sampled],
            )
        found = types_of(of_keys, identity, self._source.AT)
        others = [name for name in names if name not in keyed]
        return {name: type_ for name, type_ in found.items() if type_ is not None} | (
            self._inferred_of_values(others, identity) if others else {}
        )

    def _inferred_of_values(self, names: list[str], identity: AbstractSet[str]) -> dict[str, pa.DataType]:
        if self._is_typed:
            schema = spark_names.to_arrow_schema(self._values.columns(roots_of(names)))
            found: dict[str, pa.DataType | None] = {
                **{name: normal_type(type_) for name, type_ in zip(names_of(schema.names), schema.types, strict=True)},
                **{name: normal_type(type_) for name in names if (type_ := type_at(schema, name)) is not None},
            }
        else:
            sampled = _sample(self._spark, self._source, self._matching)
            found = dict.fromkeys(sampled) | types_of(kinds_of(sampled, names), identity, self._source.AT)
        missing, meta = [name for name in names if name not in found], meta_of(self._source)
        if missing:
            raise MissingColumnsError(
                f"{self._source.place_at}: {self._source.place!r} has no column {missing[0]!r}; pick one of {', '.join([*found, *meta])}, "
                f"or declare it in [{self._source.AT}.types]",
                missing,
                [*found, *meta],
            )
        # A column that is null throughout is left out, as it is for files.
        kinds = {name: kind for name in names if (kind := found[name]) is not None}
        for name, kind in kinds.items():
            if kind not in _SIMPLE and not pa.types.is_decimal128(kind) and not pa.types.is_nested(kind):
                at = "schema_registry" if self._source.avro_schema is None else "avro_schema"
                raise SourceError(f"{self._source.AT}.{at}: {name!r} is a {kind}; pick a column of a plain type")
        return kinds


def _needed(spark: "SparkSession", source: SourceSection, columns: EventColumns) -> "list[Column]":
    # All side by side: after each row Spark looks how large each column is by now, in structs for many times longer.
    own = {"value": _value(source).alias("value"), "partition": _partition(source)}
    fields = [own.get(name, F.col(name)) for name in _FIELDS]
    keyed = topic_of(source).of_keys(columns.needed)
    if keyed or KEY in columns.needed or columns.whole:
        fields += _key(spark, source)
    fields += [F.col("headers")] if HEADERS in columns.needed else []
    built = [_tombstone().alias(TOMBSTONE)] if source.tombstones else []
    if source.envelope is not None:
        value, reasons = _enveloped(spark, source)
        built += [*unwrapped(value), *reasons]
    elif not (names := [name for name in columns.needed if name not in meta_of(source) and name not in keyed]):
        pass
    elif source.format == "protobuf":
        message = values_of(spark, source, "protobuf").as_json(F.col("value"))
        built += [message["value"].cast("binary").alias(BODY), message["error"].alias(REASON)]
    elif source.format == "avro":
        wanted = nested_schema(pa.schema([(name, columns.types[name]) for name in names]))
        decoded_value = AvroValues(spark, source).decoded(F.col("value"), wanted)
        built += [
            *(reduce(getitem, parts_of(name), decoded_value["value"]).alias(EVENT + name) for name in names),
            decoded_value["error"].alias(REASON),
        ]
    return [*fields, *built]


def _key(spark: "SparkSession", source: SourceSection) -> "list[Column]":
    """Return a record's key; of Avro as text, for a record as JSON, and the reason why there is none."""
    if source.key_format in (None, "json"):
        return [F.col("key")]
    decoded = values_of(spark, source, source.key_format).as_json(F.col("key"))
    return [decoded["value"].cast("binary").alias("key"), decoded["error"].alias(KEY_REASON)]


def _value(source: SourceSection) -> "Column":
    """Return a record's value; of JSON without the five bytes before it, if it has them. No JSON begins with a zero."""
    value = F.col("value")
    if source.format != "json" or not source.confluent_header:
        return value
    return F.when(F.substring(value, 1, 1) == F.lit(bytearray(1)), F.substring(value, 6, 1 << 30)).otherwise(value)


def _partition(source: SourceSection) -> "Column":
    """Return a record's partition; with several topics, a number that no other topic's partition has."""
    if source.topics is None:
        return F.col("partition")
    slots, at = slots_of(source), F.col("partition")
    place = F.array_position(F.lit([*slots]), F.col("topic")).cast("int")
    of_topic = F.element_at(F.lit([slot * PARTITIONS for slot in slots.values()]), place).cast("int")
    refused = F.raise_error(f"{source.place_at}: a topic has more than {PARTITIONS:,} partitions; read it alone")
    return F.when(at < PARTITIONS, of_topic + at).otherwise(refused.cast("int")).alias("partition")


def topic_of(source: SourceSection) -> Topic:
    """Return the settings that decoding needs."""
    slots = slots_of(source) if source.has_topics else None
    return Topic(
        source.place,
        avro=source.format == "avro",
        changes=source.envelope is not None,
        has_fields_of_keys=source.key_format is not None,
        protobuf=source.format == "protobuf",
        slots=slots,
    )


def _tombstone() -> "Column":
    """Return the headers of a tombstone; null if the record has a value, or none of them."""
    header = {name: _header(full).alias(name) for name, full in TOMBSTONE_HEADERS.items()}
    named = reduce(or_, (value.isNotNull() for value in header.values()))
    return F.when(F.col("value").isNull() & named, F.struct(*header.values()))


def _header(name: str) -> "Column":
    def is_sought(header: "Column") -> "Column":
        return header["key"] == name

    return F.get(F.filter("headers", is_sought), F.lit(0))["value"]


def loses_data(source: SourceSection) -> bool:
    """Say whether the options let a run go on if records are gone."""
    given = {name.lower(): text for name, text in option_texts(source.options).items()}
    return given.get("failondataloss", "").lower() == "false"


def _options(source: SourceSection, topics: Sequence[str], needed: Collection[str] = ()) -> dict[str, str]:
    # Spark's default is to begin with the next record; a pipeline begins with the topic's earliest one.
    # A fetch is a megabyte of a partition, of which Kafka's consumer hands on 500 records a call; before each call Spark asks
    # the broker for the partition's first and last offset.
    defaults = {"startingOffsets": "earliest", "kafka.max.poll.records": "20000"}
    ours = {
        "kafka.bootstrap.servers": reveal(f"{source.AT}.bootstrap_servers", source.bootstrap_servers or ""),
        "subscribe": ",".join(topics),
        # Spark would build them for every record.
        "includeHeaders": str(source.tombstones or HEADERS in needed).lower(),
    }
    return {**defaults, **reveal_all(f"{source.AT}.options", option_texts(source.options)), **ours}


def kinds_of_keys(sampled: InferredTypes, keyed: Mapping[str, str]) -> InferredTypes:
    """Return the kinds of the fields of keys, by the columns' names."""
    kinds = kinds_of(sampled, keyed.values())
    return {name: kinds[inner] for name, inner in keyed.items() if inner in kinds}


def _sample(spark: "SparkSession", source: SourceSection, topics: Sequence[str], *, key: bool = False) -> InferredTypes:
    """Return the kinds of the first records' values, or of their keys."""
    given = {n: v for n, v in _options(source, topics).items() if not n.lower().startswith(("starting", "ending"))}
    options = {**given, "startingOffsets": "earliest"}
    records = spark.read.format("kafka").options(**options).load()
    # A limit reads one partition after the other, and none further than it must.
    if key:
        records = records.select(_key(spark, source)[0].alias("value"))
    elif source.envelope is not None:
        records = records.select(unwrapped(_enveloped(spark, source)[0])[0].alias("value"))
    else:
        records = records.select(_value(source).alias("value"))
    values = [bytes(row[0]) for row in records.select("value").where("value is not null").limit(SAMPLED).collect()]
    types = infer_values(values) if values else {}
    if not types:
        of = "keys" if key else "records"
        state = f"has no {of}" if not values else f"has no JSON object among its first {of}"
        raise SourceError(
            f"{source.place_at}: {source.place!r} {state}, so that no column types can be learnt; declare each in [{source.AT}.types]"
        )
    return types


def _enveloped(spark: "SparkSession", source: SourceSection) -> "tuple[Column, list[Column]]":
    """Return a record's envelope as JSON, and for Avro the reason why there is none."""
    if source.format != "avro":
        return _value(source), []
    decoded = AvroValues(spark, source).as_json(F.col("value"))
    return decoded["value"], [decoded["error"].alias(REASON)]
