"""A config refers to secrets and does not hold them: values are looked up where they are used, and stand in nothing that is kept or shown."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sessionlake.cli.shared import one_line_errors
from sessionlake.config.load import Config, parse_config
from sessionlake.config.secrets import hide, reveal
from sessionlake.config.source import option_texts
from sessionlake.errors import ConfigError
from sessionlake.observe.datasets import datasets
from sessionlake.sources import kafka as kafka_source
from sessionlake.sources.kafka_cluster import Cluster

PASSWORD, USER = 'ge"he$im', "sessionizer-user"
JAAS = 'PlainLoginModule required username="${env:KAFKA_USER}" password="${file:secrets/kafka}";'


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "kafka").write_text(f"{PASSWORD}\n")
    monkeypatch.setenv("KAFKA_USER", USER)
    monkeypatch.setenv("KAFKA_SERVERS", "broker.internal:9096")
    return parse(tmp_path, {})


def parse(directory: Path, changes: dict[str, Any]) -> Config:
    kafka = {"bootstrap_servers": "${env:KAFKA_SERVERS}", "options": {"kafka.sasl.jaas.config": JAAS, "n": 3}}
    raw = {
        "pipeline": {"name": "p", "warehouse": "w"},
        "source": {"kind": "kafka", "topic": "clicks", "format": "json", **kafka},
        "event": {"key": "_key", "time": "_timestamp"},
        "session": {"gap": "1 minute"},
        "sink": {"kafka": {"topic": "sessions", **kafka}},
        **changes,
    }
    return parse_config(raw, directory)


def test_values_are_looked_up_where_spark_and_kafka_take_them(config: Config) -> None:
    expected = f'PlainLoginModule required username="{USER}" password="{PASSWORD}";'
    options = kafka_source._options(config.source, ["clicks"])
    assert options["kafka.sasl.jaas.config"] == expected
    assert (options["kafka.bootstrap.servers"], options["n"]) == ("broker.internal:9096", "3")
    assert config.sink.kafka is not None
    sink = Cluster("sink.kafka", config.sink.kafka.bootstrap_servers, option_texts(config.sink.kafka.options))
    assert (sink.servers, sink.client_options) == ("broker.internal:9096", {"kafka.sasl.jaas.config": expected})


def test_values_stand_in_nothing_that_is_kept_or_shown(config: Config) -> None:
    cluster = Cluster("source", config.source.bootstrap_servers or "", option_texts(config.source.options))
    cluster.client_options  # noqa: B018 (looked up before)
    kept = [
        config.model_dump_json(),
        config.rebuild_settings(),
        config.live_settings(),
        *datasets(config, "run", {}),
    ]
    shown = "".join(map(repr, [config, cluster, *kept]))
    for value in (PASSWORD, json.dumps(PASSWORD), USER, "broker.internal"):
        assert value not in shown
    with pytest.raises(Exception, match=r"\$\{env:KAFKA_SERVERS\}.* does not answer"):
        Cluster("source", "${env:KAFKA_SERVERS}", {}).require_reachable()


def test_an_error_of_others_that_quotes_a_value_shows_the_reference(config: Config) -> None:
    @click.command()
    @one_line_errors
    def fail() -> None:
        raise ValueError(kafka_source._options(config.source, ["clicks"])["kafka.sasl.jaas.config"])

    group = click.Group("main", commands={"fail": fail}, params=[click.Option(["--traceback"], is_flag=True)])
    for words in (["fail"], ["--traceback", "fail"]):
        result = CliRunner().invoke(group, words)
        assert PASSWORD not in result.stderr
        assert USER not in result.stderr
        assert 'username="${env:KAFKA_USER}"' in result.stderr


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a${env:NOT_SET_ANYWHERE}", "source.options.x: the environment has no 'NOT_SET_ANYWHERE'; set it, or correct the name"),
        ("${file:none}", "source.options.x: 'none' can't be read (No such file or directory); correct the path"),
        ("${file:.}", "source.options.x: '.' can't be read (Is a directory)"),
    ],
)  # fmt: skip
def test_a_missing_value_is_one_line(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        reveal("source.options.x", text)
    assert str(caught.value).startswith(line)


def test_an_empty_file_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="is empty; write the value into it"):
        reveal("x", f"${{file:{tmp_path}/empty}}")


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"pipeline": {"name": "p", "warehouse": "${env:LAKE}"}}, "pipeline.warehouse: '${env:LAKE}'"),
        ({"aggregates": {"n": "sum(${file:x})"}}, "aggregates.n: "),
        ({"lineage": {"transport": "http", "url": "http://${env:KEY}@x"}}, "lineage.url: "),
    ],
)
def test_a_reference_elsewhere_is_refused(tmp_path: Path, changes: dict[str, Any], where: str) -> None:
    with pytest.raises(
        ConfigError, match="refers to a secret; that goes in bootstrap_servers, schema_registry, in"
    ) as caught:
        parse(tmp_path, changes)
    assert str(caught.value).startswith(where)


def test_short_values_are_left_in_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT", "a")
    assert reveal("x", "${env:SHORT}") == "a"
    assert hide("a bad day") == "a bad day"
