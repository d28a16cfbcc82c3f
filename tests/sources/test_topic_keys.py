"""Fields of records' keys as columns: of JSON, and of Avro by a registry (rule 470)."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.config.load import Config, parse_config
from sessionlake.errors import ConfigError
from sessionlake.serve.queries import query_tables
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.kafka_records import RecordDecoder
from sessionlake.sources.decoding.kafka_records import Topic as Decoded
from sessionlake.sources.record_columns import META
from sessionlake.stream.run import run
from tests.sources.kafka_support import Row, Topic
from tests.sources.registry_support import Registry, record, serving, written


def test_fields_of_keys_and_bad_keys() -> None:
    keys = [b'{"id": 7, "shop": {"name": "a"}}', None, b"{}", b"7", b'{"id": "x"}', b'{"shop": 1}', b"\xff"]
    rows = len(keys)
    records = pa.table(
        {
            "value": pa.array([b'{"id": 1}'] * rows),
            "key": pa.array(keys),
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": pa.array(range(rows)),
            "timestamp": pa.array([0] * rows, pa.timestamp("us", "UTC")),
        }
    )
    types = {**META, "id": pa.int64(), "_key.id": pa.int64(), "_key.shop.name": pa.string()}
    columns = EventColumns("_key.id", "_timestamp", None, None, ("_key.shop.name", "id"), types)
    (decoded,) = RecordDecoder(columns, Decoded("t", avro=False, has_fields_of_keys=True)).decode(records)
    assert decoded.table["_key.id"].to_pylist() == [7, *[None] * 6]
    assert decoded.table["_key.shop.name"].to_pylist() == ["a", *[None] * 6]
    assert decoded.error is not None
    assert decoded.error.to_pylist() == [
        None,
        None,
        None,
        "bad key: not an object",
        "wrong type: _key.id = 'x' is not a long",
        "wrong type: _key.shop.name = none, because shop = 1 has no fields",
        "bad key: not UTF-8 at byte 0",
    ]


def config_of(root: Path, **source: Any) -> Config:
    base = {"kind": "kafka", "bootstrap_servers": "localhost:1", "topic": "t", "format": "json", "key_format": "json"}
    sections = {
        "pipeline": {"name": "keys", "warehouse": "warehouse", "shards": 2},
        "source": base | source,
        "event": {"key": ["_key.shop", "_key.id"], "time": "_timestamp"},
        "table": {"columns": ["v"], "order": "offset"},
    }
    return parse_config(sections, root)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"key_format": "avro"}, "source.schema_registry: is missing, which has the keys' schemas; "),
        ({"schema_registry": "http://r"}, "source.schema_registry: goes with format 'avro' or 'protobuf' only; "),
        ({"key_format": "avro", "schema_registry": "http://r", "avro_schema": "a"}, "source.avro_schema: goes with "),
    ],
)
def test_keys_that_are_refused(tmp_path: Path, source: Row, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        config_of(tmp_path, **source)
    assert str(error.value).startswith(told), error.value


def test_a_table_is_bound_to_keys_that_become_another_text(tmp_path: Path) -> None:
    plain, avro = (
        config_of(tmp_path, key_format=form, **({} if form == "json" else {"schema_registry": "http://r"}))
        for form in ("json", "avro")
    )
    assert avro.rebuild_settings() == plain.rebuild_settings() | {"source.key_format": "avro"}


def test_a_table_by_keys_of_avro(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic, schema = Topic.create(broker, partitions=1), record("Key", shop="string", id="long")
    with serving(Registry()) as registry:
        number, plain = registry.add(f"{topic.name}-key", schema), registry.add("other", "long")

        def sent(*rows: tuple[Any, int | None]) -> None:
            topic.send({"key": key, "value": v and json.dumps({"v": v})} for key, v in rows)

        one, two = (written(number, schema, {"shop": "a", "id": 1 << 60 | id_}) for id_ in (1, 2))
        sent((one, 1), (two, 2), (b"junk", 3), (written(plain, "long", 7), 4), (None, 5), (one, 6))
        servers = broker.bootstrap_servers
        config = config_of(
            tmp_path, topic=topic.name, bootstrap_servers=servers, key_format="avro", schema_registry=registry.url
        )
        assert run(spark, config, once=True).counts["dead"] == 3
        query = "select shop, id, v from table_live order by 2"
        assert query_tables(config, query, 10)[1] == [("a", str(1 << 60 | 1), 6), ("a", str(1 << 60 | 2), 2)]
        # A record without a value deletes the row of its key.
        sent((one, None))
        assert run(spark, config, once=True).counts["dead"] == 0
        assert query_tables(config, query, 10)[1] == [("a", str(1 << 60 | 2), 2)]
    reasons = query_tables(config, "select reason from dead_letters order by 1", 10)[1]
    assert [reason for (reason,) in reasons] == [
        "bad Avro: the value does not begin with the id of a schema",
        "bad key: not an object",
        "null key",
    ]


@pytest.mark.slow
def test_a_delete_of_a_database_has_a_key_only(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = Topic.create(broker, partitions=1)
    rows: list[tuple[int, str, Row | None]] = [(1, "c", {"id": 1, "v": 5}), (2, "c", {"id": 2, "v": 6}), (1, "d", None)]
    topic.send(
        {
            "key": json.dumps({"shop": "a", "id": key}),
            "value": json.dumps({"op": op, "before": None, "after": row, "source": {"ts_ms": 1_700_000_000_000}}),
        }
        for key, op, row in rows
    )
    config = config_of(
        tmp_path, topic=topic.name, bootstrap_servers=broker.bootstrap_servers, envelope="debezium", types={"v": "long"}
    )
    assert run(spark, config, once=True).counts["dead"] == 0
    assert query_tables(config, "select shop, id, v from table_live", 10)[1] == [("a", "2", 6)]
