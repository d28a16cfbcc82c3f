"""Topics whose values are messages of Protobuf, with their files in a registry (rule 471)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.config.load import Config, parse_config
from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError, SourceError
from sessionlake.serve.queries import query_tables
from sessionlake.sources.avro import ProtobufValues
from sessionlake.stream.run import run
from tests.sources.kafka_support import Row, Topic
from tests.sources.registry_support import Registry, serving

Field = descriptor_pb2.FieldDescriptorProto
T0 = 1_700_000_000


def field(name: str, number: int, kind: int, of: str = "", *, many: bool = False, optional: int | None = None) -> Field:
    label = Field.LABEL_REPEATED if many else Field.LABEL_OPTIONAL
    found = Field(name=name, number=number, type=kind, label=label, type_name=of or None)
    if optional is not None:
        found.proto3_optional, found.oneof_index = True, optional
    return found


def money_file() -> descriptor_pb2.FileDescriptorProto:
    """Return a file that another one imports."""
    fields = [field("cents", 1, Field.TYPE_INT64), field("currency", 2, Field.TYPE_STRING)]
    money = descriptor_pb2.DescriptorProto(name="Money", field=fields)
    return descriptor_pb2.FileDescriptorProto(name="money.proto", package="shop", syntax="proto3", message_type=[money])


def click_file(*more: Field) -> descriptor_pb2.FileDescriptorProto:
    """Return a file with a message of every kind of field, and another message with one in it."""
    pair = [field("key", 1, Field.TYPE_STRING), field("value", 2, Field.TYPE_INT32)]
    counts = descriptor_pb2.DescriptorProto(name="CountsEntry", field=pair)
    counts.options.map_entry = True
    enum = descriptor_pb2.EnumDescriptorProto(name="Kind")
    for number, name in enumerate(("VIEW", "BUY")):
        enum.value.add(name=name, number=number)
    fields = [
        field("user", 1, Field.TYPE_STRING),
        field("at", 2, Field.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
        field("kind", 3, Field.TYPE_ENUM, ".shop.Click.Kind"),
        field("price", 4, Field.TYPE_MESSAGE, ".shop.Money"),
        field("tags", 5, Field.TYPE_STRING, many=True),
        field("counts", 6, Field.TYPE_MESSAGE, ".shop.Click.CountsEntry", many=True),
        field("note", 7, Field.TYPE_STRING, optional=0),
        field("n", 8, Field.TYPE_INT64),
        field("big", 9, Field.TYPE_UINT64),
        field("again", 10, Field.TYPE_MESSAGE, ".shop.Click"),
        *more,
    ]
    click = descriptor_pb2.DescriptorProto(name="Click", field=fields, nested_type=[counts], enum_type=[enum])
    click.oneof_decl.add(name="_note")
    inner = descriptor_pb2.DescriptorProto(name="Inner", field=[field("user", 1, Field.TYPE_STRING)])
    other = descriptor_pb2.DescriptorProto(name="Other", nested_type=[inner])
    imports = ["google/protobuf/timestamp.proto", "money.proto"]
    return descriptor_pb2.FileDescriptorProto(
        name="click.proto", package="shop", syntax="proto3", dependency=imports, message_type=[click, other]
    )


def classes(*files: descriptor_pb2.FileDescriptorProto) -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    own = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(own)
    for file in (own, *files):
        pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
        for name in ("Click", "Other.Inner", "Money")
    }


def framed(number: int, message: Any, place: bytes = b"\0") -> bytes:
    """Return a message in Confluent's wire format; the first message's place is one zero."""
    return b"\0" + number.to_bytes(4, "big") + place + message.SerializeToString()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as found:
        yield found


def config_of(root: Path, **source: Any) -> Config:
    base = {"kind": "kafka", "bootstrap_servers": "localhost:1", "topic": "t", "format": "protobuf"}
    sections = {
        "pipeline": {"name": "clicks", "warehouse": "warehouse", "shards": 2},
        "source": base | source,
        "event": {"key": "user", "time": "at", "where": "kind <> 'BUY' or price.currency = 'EUR'"},
        "session": {"gap": "1 hour", "grace": "1 day", "retention": "9999 days"},
        "aggregates": {
            "cents": "sum(price.cents)",
            "tags": "sum(size(tags))",
            "x": "sum(counts['x'])",
            "noted": "count(note)",
            "zeros": "count() filter (where n = 0)",
            "most": "max(cast(big as string))",
        },
    }
    return parse_config(sections, root)


def test_sessions_of_messages(spark: SparkSession, broker: Broker, registry: Registry, tmp_path: Path) -> None:
    topic = Topic.create(broker, partitions=1)
    money, click = money_file(), click_file()
    registry.add_file("money", money)
    references = [{"name": "money.proto", "subject": "money", "version": 1}]
    number = registry.add_file(f"{topic.name}-value", click, references)
    of = classes(money, click)

    def made(user: str, at: int, **more: Any) -> Any:
        return of["Click"](user=user, at={"seconds": T0 + at}, **more)

    values = [
        framed(number, made("a", 0, price={"cents": 250, "currency": "EUR"}, tags=["p", "q"], kind="BUY", note="")),
        framed(number, made("a", 60, counts={"x": 7, "y": 1}, n=1 << 53 | 1, big=(1 << 64) - 1)),
        framed(number, made("b", 0, price={"cents": 9, "currency": "USD"}, kind="BUY"), b"\x02\0"),
        framed(number, made("b", 1, again={"user": "z"})),
        framed(number, made("a", 0))[:-1],
        framed(number, made("a", 0), b"\x02\x08"),
        # Another message of the file has no kind, for which `where` is true of none.
        framed(number, of["Other.Inner"](user="c"), b"\x04\x02\0"),
        b"\0\0\0\0\1\0",
        b"{}",
    ]
    topic.send({"value": value} for value in values)
    config = config_of(
        tmp_path, topic=topic.name, bootstrap_servers=broker.bootstrap_servers, schema_registry=registry.url
    )
    counts = run(spark, config, once=True).counts
    assert [counts[name] for name in ("input", "accepted", "filtered", "dead")] == [9, 3, 2, 4]
    query = "select session_key, event_count, cents, tags, x, noted, zeros, most from sessions_live order by 1"
    assert query_tables(config, query, 10)[1] == [
        ("a", 2, 250, 2, 7, 1, 1, str((1 << 64) - 1)),
        ("b", 1, None, 0, None, 0, 1, "0"),
    ]
    reasons = query_tables(config, "select reason from dead_letters order by 1", 10)[1]
    assert [reason for (reason,) in reasons] == [
        f"bad Protobuf: schema {number} has no message [4]",
        "bad Protobuf: the value does not begin with the id of a schema and the place of a message",
        f"bad Protobuf: the value is not of Click of schema {number}",
        "no schema 1 in the registry",
    ]
    # A newer version has a further field, which changes nothing, and keys of Protobuf have fields, too.
    newer = click_file(field("more", 11, Field.TYPE_STRING))
    second = registry.add_file(f"{topic.name}-value", newer, references)
    message = classes(money, newer)["Click"](user="b", at={"seconds": T0 + 2}, more="x")
    topic.send([{"value": framed(second, message)}])
    assert run(spark, config, once=True).counts["accepted"] == 1
    assert query_tables(config, "select event_count from sessions_live order by session_key", 10)[1] == [(2,), (2,)]


@pytest.mark.slow
def test_columns_of_a_file(spark: SparkSession, registry: Registry) -> None:
    references = [{"name": "money.proto", "subject": "money", "version": 1}]
    registry.add_file("money", money_file())
    registry.add_file("t-value", click_file(), references)
    registry.add("text-value", "syntax = 'proto3';", kind="PROTOBUF")
    source = SourceSection(kind="kafka", topic="t", format="protobuf", schema_registry=registry.url)
    columns = ProtobufValues(spark, source).columns()
    assert columns.simpleString() == (
        "struct<user:string,at:timestamp,kind:string,price:struct<cents:bigint,currency:string>,tags:array<string>,"
        "counts:map<string,bigint>,note:string,n:bigint,big:decimal(20,0)>"
    )
    text = source.model_copy(update={"topic": "text"})
    with pytest.raises(
        SourceError, match=r"^source.schema_registry: .*must give files of Protobuf with format=serialized"
    ):
        ProtobufValues(spark, text).columns()


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({}, "source.schema_registry: is missing, which has the values' schemas; "),
        ({"schema_registry": "http://r", "avro_schema": "a"}, "source.avro_schema: goes with format 'avro' only; "),
        (
            {"schema_registry": "http://r", "confluent_header": True},
            "source.confluent_header: values of a registry always",
        ),
        (
            {"schema_registry": "http://r", "envelope": "debezium"},
            "source.envelope: goes with format 'json' or 'avro' only",
        ),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, source: Row, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        config_of(tmp_path, **source)
    assert str(error.value).startswith(told), error.value
