"""Values whose schemas a registry has: each version of a schema against a plain reading of it, and what must not stop a stream."""

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError, SourceError, UnreachableError
from sessionlake.sources.avro import AvroValues, explained, parted
from sessionlake.sources.columns import TIMESTAMP
from sessionlake.sources.sections import check_kafka
from tests.sources.registry_support import Registry, record, serving, written

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.float64()),
        ("name", pa.string()),
        ("at", TIMESTAMP),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
        ("raw", pa.binary()),
        ("price", pa.decimal128(10, 2)),
    ]
)
MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
FORMS: dict[str, list[Any]] = {
    "id": ["int", "long"],
    "amount": ["double", "float", "long", "int"],
    "name": ["string", {"type": "enum", "name": "Names", "symbols": ["a", "b", "c"]}],
    "at": [MILLIS, MICROS],
    "day": [{"type": "int", "logicalType": "date"}],
    "ok": ["boolean"],
    "raw": ["bytes", {"type": "fixed", "name": "Raw", "size": 3}],
    "price": [DECIMAL],
    # Nobody asks for these: they are read past.
    "inner": [record("Inner", x="long", y={"type": "array", "items": "string"})],
    "pairs": [{"type": "map", "values": ["null", "double"]}],
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def value_of(rng: random.Random, name: str, form: Any) -> Any:
    """Return a value to write."""
    made: dict[str, Callable[[], Any]] = {
        "id": lambda: rng.randrange(-(2**31), 2**31),
        "amount": lambda: (
            rng.randrange(-1000, 1000) if form in ("int", "long") else float(np.float32(rng.uniform(-1e9, 1e9)))
        ),
        "name": lambda: rng.choice(["", "ä", "a\0b", "x" * 300] if form == "string" else ["a", "b", "c"]),
        "at": lambda: EPOCH + timedelta(milliseconds=rng.randrange(-(10**12), 10**13)),
        "day": lambda: date(1970, 1, 1) + timedelta(days=rng.randrange(-10000, 40000)),
        "ok": lambda: rng.random() < 0.5,
        "raw": lambda: rng.randbytes(3),
        "price": lambda: Decimal(rng.randrange(-(10**10) + 1, 10**10)).scaleb(-2),
        "inner": lambda: {"x": 1, "y": ["a"] * rng.randrange(3)},
        "pairs": lambda: {"k": None, "l": 2.5},
    }
    return made[name]()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as found:
        yield found


def section(registry: Registry, **more: Any) -> SourceSection:
    given = {"kind": "kafka", "topic": "clicks", "format": "avro", "schema_registry": registry.url, **more}
    return SourceSection.model_validate(given)


def decoded(
    spark: SparkSession,
    registry: Registry,
    values: list[bytes],
    columns: pa.Schema = COLUMNS,
    **more: Any,
) -> list[tuple[dict[str, Any] | None, str | None]]:
    """Return the values and the errors, in order."""
    rows = spark.createDataFrame([(i, value) for i, value in enumerate(values)], "i int, value binary").repartition(2)
    column = AvroValues(spark, section(registry, **more)).decoded(rows["value"], columns)
    found = rows.select("i", column.alias("x")).select("i", "x.value", "x.error").toArrow().sort_by("i")
    return list(zip(found["value"].to_pylist(), found["error"].to_pylist(), strict=True))


@settings(max_examples=5)
@given(seed=st.integers(0, 2**32))
def test_values_of_many_versions_equal_a_plain_reading(spark: SparkSession, seed: int) -> None:
    rng, values, wanted = random.Random(seed), list[bytes](), list[dict[str, Any]]()
    with serving(Registry()) as registry:
        for _ in range(30):
            names = rng.sample(sorted(FORMS), rng.randrange(1, len(FORMS) + 1))
            forms = {name: rng.choice(FORMS[name]) for name in names}
            optional = {name for name in names if rng.random() < 0.4}
            schema = record(**{n: ["null", form] if n in optional else form for n, form in forms.items()})
            number = registry.add("clicks-value", schema)
            for _ in range(5):
                row = {
                    n: None if n in optional and rng.random() < 0.3 else value_of(rng, n, f) for n, f in forms.items()
                }
                values.append(written(number, schema, row))
                wanted.append({name: row.get(name) for name in COLUMNS.names})
        found = decoded(spark, registry, values)
        assert len(registry.asked) <= 30 * 2, "a schema is asked for once in a JVM"
    assert found == [(row, None) for row in wanted]


def test_bad_values_have_a_reason_and_touch_no_other(spark: SparkSession, registry: Registry) -> None:
    schema = record(id="long", name="string")
    number, text, plain = (
        registry.add("s", schema),
        registry.add("s", record(id="string")),
        registry.add("s", "string"),
    )
    other = registry.add("s", {"x": 1}, kind="PROTOBUF")
    broken = registry.add("s", {"type": "record", "name": "X", "fields": "none"})
    good = written(number, schema, {"id": 1, "name": "a"})
    cases = {
        good: None,
        good[:-1]: f"bad Avro: the value is not of schema {number}",
        good + b"x": f"bad Avro: the value is not of schema {number}",
        good[:5] + b"\xff" * 20: f"bad Avro: the value is not of schema {number}",
        # A text of 2 GB, of which no byte is there.
        good[:5] + b"\x02\xee\xff\xff\xff\x0f": f"bad Avro: the value is not of schema {number}",
        b"": "bad Avro: the value does not begin with the id of a schema",
        b"\0\0\0\1": "bad Avro: the value does not begin with the id of a schema",
        b'{"id": 1}': "bad Avro: the value does not begin with the id of a schema",
        b"\0\0\0\0\7\2": "no schema 7 in the registry",
        written(text, record(id="string"), {"id": "x"}): f"bad Avro: id is a string in schema {text}, not a bigint",
        written(plain, "string", "x"): f"bad Avro: schema {plain} is no record",
        b"\0" + other.to_bytes(4, "big"): f"schema {other} is of PROTOBUF, not of Avro",
        b"\0" + broken.to_bytes(4, "big"): f"schema {broken} can't be read: SchemaParseException",
    }
    columns = pa.schema([("id", pa.int64()), ("name", pa.string())])
    found = decoded(spark, registry, [*cases, good], columns)
    assert [error for _, error in found] == [*cases.values(), None]
    assert [value for value, _ in found if value is not None] == [{"id": 1, "name": "a"}] * 2


def test_fields_that_spark_has_no_type_for_harm_no_others(spark: SparkSession, registry: Registry) -> None:
    long = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
    schema = record("Node", id="long", next=["null", "Node"], price=long)
    number = registry.add("clicks-value", schema)
    assert AvroValues(spark, section(registry)).columns().names == ["id", "price"]
    value = written(
        number,
        {**schema, "fields": [*schema["fields"][:2], {"name": "price", "type": "bytes"}]},
        {"id": 1, "next": {"id": 2, "next": None, "price": b""}, "price": b"x"},
    )
    columns = pa.schema([("id", pa.int64()), ("price", pa.binary())])
    assert decoded(spark, registry, [value], columns) == [({"id": 1, "price": b"x"}, None)]
    flat = record(id="long", price=long, at=MICROS)
    number = registry.add("flat", flat)
    plain = record(id="long", price="bytes", at="long")
    rows = spark.createDataFrame([(written(number, plain, {"id": 1, "price": b"x", "at": 1234567}),)], "value binary")
    found = rows.select(AvroValues(spark, section(registry)).as_json(rows["value"]).alias("x")).select("x.*").collect()
    assert json.loads(found[0]["value"]) == {"id": 1, "price": "eA==", "at": "1970-01-01T00:00:01.234567Z"}
    registry.add("text", "string")
    text = AvroValues(spark, section(registry, schema_subject="text"))
    with pytest.raises(
        SourceError, match=r"^source.schema_registry: version 1 of text is no record; write source.schema_"
    ):
        text.columns()


def test_values_and_schemas_that_would_end_java_are_bad_values_between_good_ones(
    spark: SparkSession, registry: Registry
) -> None:
    node = record("N", next=["null", "N"])
    deep = registry.add("s", record(user="string", tree=["null", node]))
    fixed = registry.add("s", record(user="string", f={"type": "fixed", "name": "F", "size": 2_000_000_000}))
    nulls = registry.add("s", record(user="string", n={"type": "array", "items": "null"}))
    many = record("M", **{f"f{i}": "null" for i in range(2000)})
    wide = registry.add("s", record(user="string", n={"type": "array", "items": many}))
    wider = registry.add("s", record(user="string", m={"type": "array", "items": record("O", id="int", more=many)}))
    nested: Any = "int"
    for _ in range(900):
        nested = {"type": "array", "items": nested}
    arrays = registry.add("s", record(user="string", a=nested))
    brackets = registry.add("s", {"type": "record", "name": "X", "fields": []})
    registry.schemas[brackets]["schema"] = '{"type":"array","items":' * 20_000 + '"int"' + "}" * 20_000

    def value(number: int, rest: bytes) -> bytes:
        return b"\0" + number.to_bytes(4, "big") + b"\6abc" + rest

    block = b"\x80\x20"  # 2,048 items
    cases = {
        value(deep, b"\2" * 400 + b"\0"): None,
        value(deep, b"\2" * 2000 + b"\0"): f"bad Avro: the value is not of schema {deep}",
        value(deep, b"\2" * 1_000_000 + b"\0"): f"bad Avro: the value is not of schema {deep}",
        value(fixed, b"x" * 100): f"bad Avro: schema {fixed} has a fixed of 2000000000 bytes, and 1048576 are allowed",
        value(nulls, block * 200_000 + b"\0"): f"bad Avro: the value is not of schema {nulls}",
        value(nulls, b"\6\0"): None,
        value(wide, block * 2000 + b"\0"): f"bad Avro: the value is not of schema {wide}",
        value(wider, b"\x80\x08" + b"\2" * 512 + b"\0"): f"bad Avro: the value is not of schema {wider}",
        value(arrays, b"\2" * 899 + b"\2\2" + b"\0" * 900): None,
        value(brackets, b""): f"schema {brackets} can't be read: StreamConstraintsException",
    }
    good = value(deep, b"\0")
    values = [found for case in cases for found in (good, case)] + [good]
    found = decoded(spark, registry, values, pa.schema([("user", pa.string())]))
    reasons = [reason for case in cases.values() for reason in (None, case)] + [None]
    assert [error for _, error in found] == reasons
    assert [row and row["user"] for row, _ in found] == [None if reason else "abc" for reason in reasons]
    rows = spark.createDataFrame([(one,) for one in values], "value binary").coalesce(1)
    texts = rows.select(AvroValues(spark, section(registry)).as_json(rows["value"]).alias("x")).select("x.*").collect()
    plain = [json.loads(row["value"]) for row in texts if row["value"] is not None]
    assert {"user": "abc", "n": [None] * 3} in plain
    # A schema within itself has no JSON here: Spark has no type for it.
    assert all(row["user"] == "abc" for row in plain)


def test_a_task_asks_for_no_more_than_a_thousand_unknown_ids(spark: SparkSession, registry: Registry) -> None:
    schema = record(id="long")
    number = registry.add("s", schema)
    good = written(number, schema, {"id": 1})
    unknown = [b"\0" + (7_000_000 + i).to_bytes(4, "big") + b"\2" for i in range(1500)]
    rows = spark.createDataFrame([(one,) for one in (good, *unknown, good)], "value binary").coalesce(1)
    columns = AvroValues(spark, section(registry)).decoded(rows["value"], pa.schema([("id", pa.int64())]))
    found = rows.select(columns.alias("x")).select("x.*").collect()
    assert [row["value"] and row["value"]["id"] for row in (found[0], found[-1])] == [1, 1]
    assert found[1]["error"] == "no schema 7000000 in the registry"
    assert found[1500]["error"] == (
        "schema 7001499 was not asked for, because the registry has none for too many other ids"
    )
    assert len(registry.asked) <= 1001


def test_an_unknown_id_is_not_asked_for_by_each_value(spark: SparkSession, registry: Registry) -> None:
    found = decoded(spark, registry, [b"\0\0\0\0\7\2"] * 500)
    assert {error for _, error in found} == {"no schema 7 in the registry"}
    assert len(registry.asked) <= 2  # tasks that begin at one time may each ask


def test_defaults_and_aliases_are_those_of_the_readers_schema(
    spark: SparkSession, registry: Registry, tmp_path: Path
) -> None:
    old, new = record(user="string"), record(customer="string", plan="string")
    reader = record(
        "Other",
        customer={"type": "string", "aliases": ["user"], "default": "nobody"},
        plan={"type": "string", "default": "free"},
        score={"type": ["null", "double"], "default": None},
    )
    numbers = [registry.add("s", schema) for schema in (old, new)]
    values = [written(numbers[0], old, {"user": "u"}), written(numbers[1], new, {"customer": "c", "plan": "paid"})]
    columns = pa.schema([("customer", pa.string()), ("plan", pa.string()), ("score", pa.float64())])

    (tmp_path / "reader.avsc").write_text(json.dumps(reader))
    assert decoded(spark, registry, values, columns, avro_schema=str(tmp_path / "reader.avsc")) == [
        ({"customer": "u", "plan": "free", "score": None}, None),
        ({"customer": "c", "plan": "paid", "score": None}, None),
    ]
    assert decoded(spark, registry, values, columns)[0] == ({"customer": None, "plan": None, "score": None}, None)


def test_types_of_other_subjects_are_fetched(spark: SparkSession, registry: Registry) -> None:
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}
    registry.add("money", money)
    registry.deleted.add("money")
    order = record("Order", id="long", price="shop.Money")
    number = registry.add("orders-value", order, [{"name": "shop.Money", "subject": "money", "version": 1}])
    value = written(number, record("Order", id="long", price=money), {"id": 5, "price": {"cents": 3}})
    lost = registry.add("orders-value", order, [{"name": "shop.Money", "subject": "nowhere", "version": 1}])
    found = decoded(
        spark, registry, [value, b"\0" + lost.to_bytes(4, "big") + value[5:]], pa.schema([("id", pa.int64())])
    )
    assert found == [({"id": 5}, None), (None, f"schema {lost} can't be read: version 1 of nowhere is not there")]


def test_columns_are_those_of_the_newest_version_and_asked_ones_of_older(
    spark: SparkSession, registry: Registry
) -> None:
    registry.add("clicks-value", record(id="int", gone="string", never="long"))
    registry.add("clicks-value", record(id="long", new="double"))
    found = AvroValues(spark, section(registry))
    assert found.columns().names == ["id", "new"]
    older = found.columns(["id", "gone", "nowhere"])
    assert [(field.name, field.dataType.simpleString()) for field in older][:3] == [
        ("id", "bigint"),
        ("new", "double"),
        ("gone", "string"),
    ]
    named = AvroValues(spark, section(registry, topic="other", schema_subject="clicks-value"))
    assert named.columns().names == ["id", "new"]
    with pytest.raises(
        SourceError, match=r"^source.schema_registry: has no subject 'other-value'; write source.schema_subject"
    ):
        AvroValues(spark, section(registry, topic="other")).columns()


def test_a_registry_that_needs_a_login(
    spark: SparkSession, registry: Registry, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    number = registry.add("clicks-value", record(id="long"))
    registry.login = ("loader", "p/w+d@1")
    monkeypatch.setenv("REGISTRY_PASSWORD", "p/w+d@1")
    url = registry.url.replace("http://", "http://loader:${env:REGISTRY_PASSWORD}@")
    value, columns = written(number, record(id="long"), {"id": 1}), pa.schema([("id", pa.int64())])
    assert decoded(spark, registry, [value], columns, schema_registry=url) == [({"id": 1}, None)]
    rows = spark.createDataFrame([(value,)], "value binary")
    plan = rows.select(AvroValues(spark, section(registry, schema_registry=url)).decoded(rows["value"], columns))
    plan.explain(mode="extended")
    assert "p/w+d" not in capfd.readouterr().out
    with pytest.raises(SourceError, match=r"^source.schema_registry: refuses this user \(HTTP 401\)"):
        AvroValues(spark, section(registry)).columns()


def test_a_registry_that_fails_is_one_line(spark: SparkSession, registry: Registry) -> None:
    number = registry.add("clicks-value", record(id="long"))
    registry.status = 503
    value, columns = written(number, record(id="long"), {"id": 1}), pa.schema([("id", pa.int64())])
    with pytest.raises(Py4JJavaError) as failed:
        decoded(spark, registry, [value], columns)
    error = explained(str(failed.value), section(registry))
    assert isinstance(error, UnreachableError)
    assert str(error).startswith("source.schema_registry: does not answer (HTTP 503); nothing is lost")
    registry.status = None
    assert decoded(spark, registry, [value], columns) == [({"id": 1}, None)]
    for status in (404, 302):
        registry.status = status
        with pytest.raises(SourceError, match=r"^source.schema_registry: does not answer as a schema registry"):
            AvroValues(spark, section(registry)).columns()


def test_a_url_is_parted_at_the_last_at() -> None:
    assert parted("http://registry:8081") == ("http://registry:8081", "", "")
    assert parted("https://u:a@b/c@host/path") == ("https://host/path", "u", "a@b/c")
    assert parted("http://u:p@a:1, http://u:p@b:2") == ("http://a:1,http://b:2", "u", "p")
    source = section(Registry(url="http://r:1"))
    assert explained("something else", source) is None
    assert explained("x SCHEMA_REGISTRY: http://other:1 HTTP 503", source) is None, "the other side of a join"
    assert "can't" not in str(explained("SCHEMA_REGISTRY: http://r:1 HTTP 503", source))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"schema_registry": "registry:8081"}, "source.schema_registry: must begin with http:// or https://"),
        ({"confluent_header": True}, "source.confluent_header: values of a registry always begin with the id"),
        ({"format": "json"}, "source.schema_registry: goes with format 'avro' or 'protobuf' only"),
        ({"schema_registry": None, "schema_subject": "s"}, "source.avro_schema: is missing"),
        (
            {"schema_registry": None, "avro_schema": "x", "schema_subject": "s"},
            "source.schema_subject: goes with schema_registry",
        ),
        ({"envelope": "debezium", "avro_schema": "x"}, "source.avro_schema: does not go with an envelope"),
        (
            {"schema_registry": None, "avro_schema": "x", "envelope": "debezium"},
            "source.envelope: needs source.schema_registry",
        ),
    ],
)
def test_keys_that_do_not_go_together(more: dict[str, Any], told: str) -> None:

    given = {"bootstrap_servers": "localhost:9092", **more}
    with pytest.raises(ConfigError, match=f"^{told}"):
        check_kafka(section(Registry(url="http://localhost:1"), **given))
