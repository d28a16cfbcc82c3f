"""Topics whose values have their schemas in a registry: sessions and a table of a database, over a real broker."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.config.load import load_config
from sessionlake.errors import SourceError, UnreachableError
from sessionlake.serve.queries import query_tables
from sessionlake.stream.run import run
from tests.sources.debezium_support import CONFIG, Database, assert_counted, table
from tests.sources.kafka_support import T0, Row, Topic, config_of, expected_sessions, pipeline, some_events
from tests.sources.registry_support import Registry, record, serving, written
from tests.sources.sessions_support import sessions

FIRST = record(v="int", key="string", time="long")
SECOND = record(key="string", tags={"type": "array", "items": "string"}, time="long", v=["null", "long"])
THIRD = record(v="int", time="int", key={"type": "enum", "name": "Keys", "symbols": [f"user_{i}" for i in range(12)]})


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return Topic.create(broker)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as found:
        yield found


@pytest.mark.slow
def test_sessions_of_several_versions_of_a_schema(
    spark: SparkSession, topic: Topic, registry: Registry, tmp_path: Path
) -> None:
    rows, subject = some_events(5, count=90), f"{topic.name}-value"
    first = registry.add(subject, FIRST)
    source = f'schema_registry = "{registry.url}"'
    config = config_of(tmp_path, topic, source=source, format="avro", most=50)
    topic.send({"value": written(first, FIRST, row)} for row in rows[:30])
    run(spark, config, once=True)
    assert sessions(spark, config) == expected_sessions(rows[:30])
    # Others come while the pipeline runs with what it knows; all versions are in one batch, and so is what nobody can read.
    second, third = registry.add(subject, SECOND), registry.add("somewhere else", THIRD)
    topic.send({"value": written(second, SECOND, {**row, "tags": ["a"]})} for row in rows[30:60])
    dashed = [{**row, "key": row["key"].replace("-", "_")} for row in rows[60:]]
    topic.send({"value": written(third, THIRD, row)} for row in dashed)
    gone = [b"\0\0\0\0\1x", b"{}", written(first, FIRST, rows[0])[:-1]]
    topic.send({"value": value} for value in gone)
    summary = run(spark, config, once=True)
    assert sessions(spark, config) == expected_sessions([*rows[:60], *dashed])
    assert (summary.counts["input"], summary.counts["dead"]) == (63, 3)
    dead = query_tables(config, "select reason from dead_letters order by 1", 10)[1]
    assert [reason for (reason,) in dead] == [
        "bad Avro: the value does not begin with the id of a schema",
        f"bad Avro: the value is not of schema {first}",
        "no schema 1 in the registry",
    ]


@pytest.mark.slow
def test_json_of_a_registry_has_bytes_before_it(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    rows = some_events(8, count=30)
    config = config_of(tmp_path, topic, source="confluent_header = true")
    topic.send({"value": (b"\0\0\0\0\7" if at % 3 else b"") + json.dumps(row).encode()} for at, row in enumerate(rows))
    topic.send([{"value": b"\0\0"}])
    summary = run(spark, config, once=True)
    assert (summary.counts["accepted"], summary.counts["dead"]) == (30, 1)
    assert sessions(spark, config) == expected_sessions(rows)


def test_values_that_nobody_reads_are_not_looked_at(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    names = {"key": "_key", "time": "_timestamp"}
    source = 'schema_registry = "http://127.0.0.1:1"'
    path = pipeline(tmp_path, topic, source=source, format="avro", **names)
    path.write_text(path.read_text().replace('total = "sum(v)"', 'total = "count()"'))
    topic.send([{"key": "ann", "value": b"junk", "timestamp": T0 * 1000}])
    summary = run(spark, load_config(path), once=True)
    assert (summary.counts["accepted"], summary.counts["dead"]) == (1, 0)


@pytest.mark.slow
def test_a_registry_that_is_away_loses_nothing(
    spark: SparkSession, topic: Topic, registry: Registry, tmp_path: Path
) -> None:
    rows, number = some_events(6, count=20), registry.add(f"{topic.name}-value", FIRST)
    config = config_of(tmp_path, topic, source=f'schema_registry = "{registry.url}"', format="avro")
    named = f'schema_registry = "{registry.url}"\nschema_subject = "nowhere"'
    wrong = config_of(tmp_path / "b", topic, source=named, format="avro")
    with pytest.raises(SourceError, match=r"^source.schema_registry: has no subject 'nowhere'"):
        run(spark, wrong, once=True)
    topic.send({"value": written(number, FIRST, row)} for row in rows)
    run(spark, config, once=True)
    later = some_events(7, count=20)
    other = registry.add(f"{topic.name}-value", SECOND)
    topic.send({"value": written(other, SECOND, {**row, "tags": []})} for row in later)
    registry.status = 503
    with pytest.raises(
        UnreachableError, match=r"^source.schema_registry: does not answer \(HTTP 503\); nothing is lost"
    ):
        run(spark, config, once=True)
    assert sessions(spark, config) == expected_sessions(rows)
    registry.status = None
    run(spark, config, once=True)
    assert sessions(spark, config) == expected_sessions([*rows, *later])


def changed(more: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of Debezium's envelope of the customers."""
    fields = {"id": "int", "name": ["null", "string"], "notes": ["null", "string"], "spent": "double", **(more or {})}
    source = record("Source", version="string", connector="string", name="string", ts_ms="long", table="string")
    value = record("Value", **fields)
    return record(
        "Envelope", before=["null", value], after=["null", "Value"], source=source, op="string", ts_ms=["null", "long"]
    )


@dataclass
class AvroDatabase(Database):
    """A database whose connector writes Avro; its table gets a column in between."""

    registry: Registry = field(default_factory=Registry)
    subject: str = ""
    grown: bool = False

    def record(self, key: int, value: Row) -> Row:
        schema = changed({"phone": {"type": "string", "default": "none"}} if self.grown else {})
        rows = {side: value[side] and {**value[side], "phone": "1"} for side in ("before", "after")}
        number = self.registry.number(self.subject, schema)
        return {
            "key": json.dumps({"id": key}),
            "value": written(number, schema, {**value, **rows}),
            "partition": key % 2,
        }

    def noise(self) -> list[Row]:
        if self.rng.random() < 0.3:
            self.ignored += 1
            schema = record("MessageValue", op="string", message=record("Message", prefix="string"))
            number = self.registry.number("messages", schema)
            return [{"value": written(number, schema, {"op": "m", "message": {"prefix": "p"}}), "partition": 0}]
        self.dead += 1
        other = record("Other", id="long")
        values = [
            written(self.registry.number("other", other), other, {"id": 3}),
            b"\0\0\0\0\1",
            b"{broken",
            self.record(1, {**TRUNCATED, "ts_ms": 1})["value"][:-1],
        ]
        return [{"value": self.rng.choice(values), "partition": 1}]


TRUNCATED: Row = {
    "before": None,
    "after": None,
    "source": {"version": "3", "connector": "c", "name": "n", "ts_ms": T0 * 1000, "table": "customers"},
    "op": "t",
}


@pytest.mark.slow
def test_a_table_of_a_database_whose_connector_writes_avro(
    spark: SparkSession, topic: Topic, registry: Registry, tmp_path: Path
) -> None:
    database = AvroDatabase(random.Random(3), registry=registry, subject=f"{topic.name}-value")
    path = tmp_path / "customers.toml"
    text = CONFIG.format(servers=topic.broker.bootstrap_servers, topic=topic.name)
    path.write_text(text.replace('format = "json"', f'format = "avro"\nschema_registry = "{registry.url}"'))
    config = load_config(path)
    for grown in (False, True):
        database.grown = grown
        topic.send(database.records(120))
        run(spark, config, once=True)
        assert table(config) == database.live()
    topic.send([database.record(1, TRUNCATED)])
    database.dead += 1
    run(spark, config, once=True)
    assert_counted(config, database)
    reasons = {reason for (reason,) in query_tables(config, "select distinct reason from dead_letters", 10)[1]}
    assert {"no change event", "truncate: the rows of the table are gone there, and not here"} <= reasons
    assert {"no schema 1 in the registry", "bad Avro: the value does not begin with the id of a schema"} <= reasons
