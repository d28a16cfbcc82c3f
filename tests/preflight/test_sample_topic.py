"""`check` looks at the newest records of a topic, on a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from infra.kafka.broker import Broker, free_port
from sessionlake.preflight.check import check
from tests.cli.support import Project

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("broker"), free_port(), auto_create=True) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for n in range(2500):
            at = 1_700_000_000 + n if n < 2000 else "soon"
            producer.produce("clicks", json.dumps({"user": f"u{n % 7}", "time": at, "v": n}), key=str(n))
            producer.produce(
                "headed", b"\0\0\0\0\1" + json.dumps({"user": "u", "time": 1_700_000_000, "v": n}).encode()
            )
        producer.produce("empty", b"x")
        assert producer.flush(60) == 0
        yield broker.bootstrap_servers


def of_topic(root: Path, servers: str, topic: str, more: str = "") -> Project:
    project = Project(root / "project")
    source = f'kind = "kafka"\ntopic = "{topic}"\nbootstrap_servers = "{servers}"\nformat = "json"\n{more}'
    project.edit('kind = "files"\npath = "events"\nformat = "json"\n', source)
    return project


def test_the_newest_thousand_records_are_tried(servers: str, tmp_path: Path) -> None:
    project = of_topic(tmp_path, servers, "clicks")
    found = check(project.path)
    assert found.ok
    assert found.summary["sample"].startswith("of the first 1,000 rows of clicks: 500 events, 500 dead letters (")
    project.edit('"sum(v)"', '"sum(v + 1)"')
    assert check(project.path).summary["sample"] == found.summary["sample"]
    project.edit('"sum(v + 1)"', '"sum(w)"')
    assert "column 'w' is in none of the newest records" in check(project.path).summary["sample"]


def test_a_header_before_json(servers: str, tmp_path: Path) -> None:
    project = of_topic(tmp_path, servers, "headed", "confluent_header = true\n")
    assert check(project.path).summary["sample"].endswith("1,000 events")


def test_options_that_librdkafka_does_not_know(servers: str, tmp_path: Path) -> None:
    project = of_topic(tmp_path, servers, "clicks", 'options = { "kafka.sasl.jaas.config" = "x" }\n')
    assert "options are not librdkafka's" in check(project.path).summary["sample"]


def test_no_json_in_a_topic(servers: str, tmp_path: Path) -> None:
    project = of_topic(tmp_path, servers, "empty", '[source.types]\nuser = "string"\ntime = "long"\nv = "long"\n')
    (problem,) = check(project.path).problems
    assert "1 of the first 1 row of 'empty' would be dead letters: bad JSON" in problem.message
