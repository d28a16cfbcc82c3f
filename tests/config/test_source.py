"""The config's sections about Kafka: what is wrong is one line that names the key and the remedy."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.file import ConfigFile
from sessionlake.config.load import Config, parse_config
from sessionlake.config.presets import PRESETS
from sessionlake.config.show import shown
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
    assert source.layout is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topic": None}, "source.topic: '' is no topic; write one name of"),
        ({"topic": "a,b"}, "source.topic: 'a,b' is no topic"),
        ({"bootstrap_servers": None}, "source.bootstrap_servers: is missing; write for example 'localhost:9092'"),
        ({"format": None}, "source.format: is missing; write 'json', 'avro' or 'protobuf'"),
        ({"format": "csv"}, "source.format: 'csv' is no format of records; write 'json', 'avro' or 'protobuf'"),
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
            {"kind": "files", "path": "e", "format": "json", "delimiter": ";"},
            "source.delimiter: goes with format 'csv' only; remove it",
        ),
        (
            {"kind": "delta", "path": "e", "header": False},
            "source.header: goes with kind 'files' only; remove it",
        ),
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


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"delimiter": "::"}, "source.delimiter: '::' is not one ASCII character; write for example ';'"),
        ({"delimiter": "\n"}, "source.delimiter: '\\n' is not one ASCII character"),
        ({"delimiter": ""}, "source.delimiter: '' is not one ASCII character"),
        ({"quote": ","}, "source.quote: ',' is the delimiter, too; write another character"),
        ({"escape": '"'}, "source.escape: '\"' is the quote, too; write another character"),
        ({"comment": '"x'}, "source.comment: '\"x' can begin a row, too; write a text such as '#'"),
        ({"names": ["a"]}, "source.names: goes with header = false; add that, or remove this key"),
        ({"names": ["a", "a"], "header": False}, "source.names: 'a' is there twice; name each column once"),
        ({"names": ["a", ""], "header": False}, "source.names: the name 2 is empty; write a name for each column"),
    ],
)
def test_wrong_keys_of_csv(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"kind": "files", "path": "e", "format": "csv", **keys})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "source.pattern: is missing; write a regular expression with a group (?P<name>..) for each column"),
        ({"pattern": "(?P<a>x)", "preset": "nginx"}, "source.pattern: goes without preset, which is a pattern, too"),
        ({"pattern": "x"}, "source.pattern: has no named group; write (?P<name>..) around the text of each column"),
        ({"pattern": "(?P<a>x)(?P<a>y)"}, "source.pattern: has two groups 'a'; name each column once"),
        ({"pattern": "(?P<a>x)", "delimiter": ";"}, "source.delimiter: goes with format 'csv' only; remove it"),
        ({"preset": "iis"}, "source.preset: 'iis' is not"),
        ({"format": "json", "preset": "nginx"}, "source.preset: goes with format 'text' only; remove it"),
        ({"format": "json", "records": "a..b"}, "source.records: 'a..b' is no path; write a name such as 'Records'"),
        ({"records": "."}, "source.records: goes with format 'json' only; remove it"),
        ({"format": "json", "comment": "#"}, "source.comment: goes with format 'csv' or 'text' only; remove it"),
    ],
)
def test_wrong_keys_of_text(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"kind": "files", "path": "e", "format": "text", **keys})
    assert str(caught.value).startswith(message)


def test_a_preset_brings_its_pattern_its_comment_and_the_format_of_its_time() -> None:
    raw = {"kind": "files", "path": "e", "format": "text", "preset": "cloudfront"}
    found = parse(raw, event={"key": "c_ip", "time": "time"})
    assert found.source.layout is not None
    assert (found.source.layout.pattern, found.source.layout.comment) == (PRESETS["cloudfront"].pattern, "#")
    assert (found.event.time_format, found.source.types) == ("yyyy-MM-dd\tHH:mm:ss", {"time": "string"})
    other = parse(raw, event={"key": "c_ip", "time": "sc_bytes", "time_unit": "s"})
    assert (other.event.time_format, other.source.types) == (None, {})


def test_show_prints_the_pattern_of_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    source = '[source]\nkind = "files"\npath = "e"\nformat = "text"\npreset = "nginx"\n'
    file.write_text(f'[pipeline]\nname = "p"\n{source}[event]\nkey = "remote_addr"\ntime = "time_local"\n')
    text = shown(ConfigFile.read(file))
    assert tomllib.loads(text)["source"]["pattern"] == PRESETS["nginx"].pattern
    assert 'time_format = "dd/MMM/yyyy:HH:mm:ss Z"  # the preset' in text


@pytest.mark.parametrize(
    ("event", "types", "message"),
    [
        ({"time_format": "YYYY"}, {}, "event.time_format: 'YYYY': has 'YYYY', which is not listed; write some of yyyy"),
        ({"time_format": "yyyyMMdd", "time_unit": "s"}, {}, "event.time_format: reads texts, and time_unit numbers"),
        (
            {"time_format": "yyyyMMdd"},
            {"at": "long"},
            "event.time_format: reads texts; write 'at' = \"string\" in [source.types]",
        ),
    ],
)
def test_a_wrong_format_of_times(event: dict[str, Any], types: dict[str, str], message: str) -> None:
    source = {"kind": "files", "path": "e", "format": "csv", "types": types}
    with pytest.raises(ConfigError) as caught:
        parse(source, event={"key": "k", "time": "at", **event})
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
