"""The config's sections about Kafka: what is wrong is one line that names the key and the remedy."""

from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.load import Config, parse_config
from sessionlake.errors import ConfigError

KAFKA = {"kind": "kafka", "bootstrap_servers": "localhost:9092", "topic": "clicks", "format": "json"}


def parse(source: dict[str, Any], **sections: Any) -> Config:
    raw = {
        "pipeline": {"name": "p", "warehouse": "w"},
        "source": source,
        "event": {"key": "_key", "time": "_timestamp"},
        "session": {"gap": "1 minute"},
        **sections,
    }
    return parse_config(raw, Path("/project"))


def test_a_kafka_source() -> None:
    source = parse(
        {**KAFKA, "format": "avro", "avro_schema": "click.avsc", "options": {"failOnDataLoss": False}}
    ).source
    assert (source.avro_schema, source.path) == ("/project/click.avsc", "")
    assert source.file_format is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topic": None}, "source.topic: '' is no topic; write one name of"),
        ({"topic": "a,b"}, "source.topic: 'a,b' is no topic"),
        ({"bootstrap_servers": None}, "source.bootstrap_servers: is missing; write for example 'localhost:9092'"),
        ({"format": None}, "source.format: is missing; write 'json' or 'avro'"),
        ({"format": "csv"}, "source.format: 'csv' is no format of records; write 'json' or 'avro'"),
        ({"format": "avro"}, "source.avro_schema: is missing; name the file of the schema"),
        ({"avro_schema": "x.avsc"}, "source.avro_schema: goes with format 'avro' only; remove it"),
        ({"path": "events"}, "source.path: 'events' goes with kind 'files' or 'delta'; write source.topic"),
        ({"options": {"Subscribe": "x"}}, "source.options.Subscribe: is set by another key; write source.topic"),
        ({"kind": "files", "path": "events"}, "source.bootstrap_servers: goes with kind 'kafka' only; remove it"),
        (
            {"max_bytes_per_batch": 1},
            "source.max_bytes_per_batch: Spark bounds a batch of a topic by its records; write max_",
        ),
        ({"max_offsets_per_batch": 0}, "source.max_offsets_per_batch: 0 is too small; write 1 or more"),
    ],
)
def test_a_wrong_source(changes: dict[str, Any], message: str) -> None:
    source = {name: value for name, value in {**KAFKA, **changes}.items() if value is not None}
    with pytest.raises(ConfigError) as caught:
        parse(source)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"kind": "files", "format": "json"}, "source.path: is missing; add it to the config"),
        (
            {"kind": "files", "path": "e", "format": "json", "confluent_header": True},
            "source.confluent_header: goes with kind 'kafka' only; remove it",
        ),
        ({"kind": "files", "path": "e"}, "source.format: is missing; write 'json', 'csv' or 'parquet'"),
        ({"kind": "files", "path": "e", "format": "avro"}, "source.format: 'avro' goes with kind 'kafka' only"),
        (
            {"kind": "delta", "path": "e", "format": "json"},
            "source.format: 'json' goes with kind 'files' only; remove it",
        ),
    ],
)
def test_another_kind_of_source(source: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(source)
    assert str(caught.value).startswith(message)


def test_a_wrong_sink() -> None:
    sink = {"bootstrap_servers": "localhost:9092", "topic": "sessions"}
    assert parse(KAFKA, sink={"kafka": sink}).sink.kafka is not None
    with pytest.raises(
        ConfigError, match=r"^sink\.kafka\.options\.topic: is set by another key; write sink\.kafka\.topic"
    ):
        parse(KAFKA, sink={"kafka": {**sink, "options": {"topic": "other"}}})
    with pytest.raises(ConfigError, match=r"^sink\.kafka\.topik: is unknown \(did you mean 'topic'\?\)"):
        parse(KAFKA, sink={"kafka": {**sink, "topik": "other"}})
    with pytest.raises(ConfigError, match=r"^sink\.kafka\.topic: is missing"):
        parse(KAFKA, sink={"kafka": {"bootstrap_servers": "localhost:9092"}})


@pytest.mark.parametrize(
    ("source", "limits"),
    [
        ({"kind": "files", "format": "json"}, (16, None)),
        ({"kind": "files", "format": "json", "max_files_per_batch": 3}, (3, None)),
        ({"kind": "files", "format": "json", "max_bytes_per_batch": 5}, (None, 5)),
        ({"kind": "delta"}, (16, 1 << 30)),
        ({"kind": "delta", "max_files_per_batch": 3, "max_bytes_per_batch": 5}, (3, 5)),
    ],
)
def test_what_bounds_a_batch(source: dict[str, Any], limits: tuple[int | None, int | None]) -> None:
    found = parse({"path": "events", **source}).source
    assert (found.files_per_batch, found.bytes_per_batch) == limits


def test_a_batch_of_files_is_bounded_by_one_limit() -> None:
    source = {"kind": "files", "path": "e", "format": "json", "max_files_per_batch": 3, "max_bytes_per_batch": 5}
    with pytest.raises(
        ConfigError, match=r"source\.max_bytes_per_batch: goes without max_files_per_batch.*; remove one"
    ):
        parse(source)
