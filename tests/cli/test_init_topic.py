"""`sessionlake init` of a topic, on a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from infra.kafka.broker import Broker, free_port
from sessionlake.cli import main
from sessionlake.config.file import parse_toml
from sessionlake.config.load import parse_config

pytestmark = pytest.mark.slow
START_MS = 1_750_000_000_000


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("broker"), free_port(), auto_create=True) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for n in range(300):
            value = json.dumps({"device": f"d{n % 7}", "at_ms": START_MS + 1000 * n, "v": n / 2}, indent=1)
            producer.produce("clicks", value, key=str(n), timestamp=START_MS + 1000 * n)
        producer.produce("clicks", "no JSON", timestamp=START_MS + 150_500)
        producer.produce("binary", b"\x00\x01")
        assert producer.flush(60) == 0
        yield broker.bootstrap_servers


def init(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["init", *arguments])


def test_a_topic_of_json(servers: str) -> None:
    result = init(f"kafka://{servers}/clicks", "--time", "at_ms")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "from 300 events (all of it)" in result.stdout
    assert "# 1 rows have no key, no time, or can't be read" in result.stdout
    config = parse_config(parse_toml(result.stdout, "proposal"), Path.cwd())
    source, event = config.source, config.event
    assert (source.kind, source.bootstrap_servers, source.topic, source.format) == ("kafka", servers, "clicks", "json")
    assert (event.key, event.time, event.time_unit) == ("device", "at_ms", "ms")
    assert config.aggregates == {"v_sum": "sum(v)"}


def test_what_is_no_json_or_no_topic_is_one_line(servers: str) -> None:
    for place, said in (
        (f"kafka://{servers}/binary", "has no record whose value is a JSON object"),
        ("kafka://127.0.0.1:1/clicks", "'127.0.0.1:1' does not answer"),
    ):
        result = init(place)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert said in result.stderr
