"""Topics of a pattern are read as if they were one (rule 469)."""

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.config.load import Config, parse_config
from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError, SourceError
from sessionlake.jobs.backup.backup import _of_checkpoint
from sessionlake.jobs.rebuild.checkpoint import copy_checkpoint
from sessionlake.preflight.check import check
from sessionlake.reading import read
from sessionlake.serve.queries import query_tables
from sessionlake.sources.kafka import KafkaSource
from sessionlake.stream.run import run
from sessionlake.warehouse.tables import Tables
from tests.sources.kafka_support import WAIT_S, Row, Topic, as_record, expected_sessions, some_events


def config_of(root: Path, servers: str, pattern: str, **source: Any) -> Config:
    base = {"kind": "kafka", "bootstrap_servers": servers, "topic_pattern": pattern, "format": "json"}
    sections = {
        "pipeline": {"name": "topics", "warehouse": "warehouse", "shards": 2, "archive": True},
        "source": base | source,
        "event": {"key": "key", "time": "time", "time_unit": "s"},
        "session": {"gap": "10 minutes", "grace": "30 days", "retention": "60 days"},
        "aggregates": {"total": "sum(v)", "topics": "count_distinct(_topic)", "at": "max(_partition)"},
    }
    return parse_config(sections, root)


def test_a_pattern_matches_whole_names_and_none_of_kafkas_own() -> None:
    names = ["orders", "orders-eu", "orders-eu-dlq", "old-orders-eu", "__orders-eu", "Orders-eu"]
    section = SourceSection(kind="kafka", topic_pattern="(?!.*-dlq)_*orders-.*")
    assert section.matching(names) == ["orders-eu"]
    assert section.place_at == "source.topic_pattern"
    assert SourceSection(kind="kafka", topics=["b", "a"]).matching(["c", "b"]) == ["b"]


@pytest.mark.parametrize(
    ("pattern", "more", "told"),
    [
        (
            "a(",
            {},
            "source.topic_pattern: 'a(' is no regular expression (missing ), unterminated subpattern at position 1); ",
        ),
        ("a.*", {"topic": "a"}, "source.topic_pattern: goes without topic; remove one of them"),
        ("a.*", {"topics": ["a"]}, "source.topic_pattern: goes without topics; "),
        ("a.*", {"tombstones": True}, "source.topic_pattern: goes without tombstones; "),
        ("(?P<x>a)", {}, "source.topic_pattern: '(?P<x>a)' has '(?P', which Python and Java read differently; "),
        ("[a-z&&[b]]", {}, "source.topic_pattern: '[a-z&&[b]]' has '[a-z&&[', "),
        ("[a[b]]", {}, "source.topic_pattern: '[a[b]]' has '[a[', "),
        (
            "a",
            {"options": {"subscribePattern": "b"}},
            "source.options.subscribePattern: is set by another key; write source.topic_pattern",
        ),
    ],
)
def test_patterns_that_are_refused(tmp_path: Path, pattern: str, more: Row, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        config_of(tmp_path, "localhost:1", pattern, **more)
    assert str(error.value).startswith(told), error.value


def test_check_samples_all_topics_that_match(broker: Broker, tmp_path: Path) -> None:
    base = f"t{uuid.uuid4().hex[:8]}"
    for name in ("one", "two"):
        Topic.create(broker, name=f"{base}-{name}").send(map(as_record, some_events(3, 20)))
    Topic.create(broker, name=f"{base}.dlq").send([{"value": b"{broken"}])
    found = check(config_of(tmp_path, broker.bootstrap_servers, f"{base}-.*"))
    assert found.ok
    assert found.summary["sample"] == f"of the first 40 rows of {base}-.*: 40 events"
    (problem,) = check(config_of(tmp_path, broker.bootstrap_servers, f"{base}_.*")).problems
    assert str(problem).startswith(
        f"source.topic_pattern: '{base}_.*' matches no topic of '{broker.bootstrap_servers}'"
    )


def test_topics_join_at_the_next_start(
    spark: SparkSession, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base, rows = f"t{uuid.uuid4().hex[:8]}", some_events(5, 90)
    parts = {"mm": rows[:30], "zz": rows[30:60], "aa": rows[60:]}

    def sent(name: str) -> Topic:
        topic = Topic.create(broker, name=f"{base}-{name}")
        topic.send(map(as_record, parts[name]))
        return topic

    first = sent("mm")
    sent("zz")
    Topic.create(broker, name=f"old-{base}-mm").send([{"value": b"{broken"}])
    servers, pattern = broker.bootstrap_servers, f"{base}-.*"
    config = config_of(tmp_path, servers, pattern)
    source = KafkaSource(spark, config)
    source.check()
    assert run(spark, config, once=True).counts["input"] == 60
    # A topic whose name is the first one gets the last number.
    sent("aa").send([{"value": "{broken", "partition": 1}])
    source._next_look = 0
    source.watch()
    source.watch()
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        f"warning: source.topic_pattern: '{base}-aa' matches now, and is read from the next start on"
    ]
    counts = run(spark, config, once=True).counts
    assert (counts["input"], counts["dead"]) == (31, 1)
    found = [
        (
            row["session_key"],
            int(row["session_start"].timestamp()),
            int(row["session_end"].timestamp()),
            row["event_count"],
            row["total"],
        )
        for row in read(spark, config).collect()
    ]
    assert sorted(found) == expected_sessions(rows)
    ((place,),) = query_tables(config, "select source from dead_letters", 10)[1]
    assert place.startswith(f"{base}-aa/1/")
    told = "select distinct event._topic, event._partition // 4096 from events order by 2"
    assert query_tables(config, told, 10)[1] == [(f"{base}-mm", 0), (f"{base}-zz", 1), (f"{base}-aa", 2)]
    tables = Tables.of(spark, config)
    assert f"{config.checkpoint}/sources/0/3.topics" in [path for path, _ in _of_checkpoint(tables, config, 1)]
    archive: Any = SimpleNamespace(
        checkpoint=config.checkpoint, batch=SimpleNamespace(batch_id=1), offsets="v1\n{}\n{}\n{}"
    )
    copy_checkpoint(tables, archive, str(tmp_path / "copy"))
    assert (tmp_path / "copy/sources/0/3.topics").read_text().split() == [
        f"{base}-{name}" for name in ("mm", "zz", "aa")
    ]
    # A topic that is gone may have had records that nobody has read.
    admin = first.admin()
    admin.delete_topics([first.name])[first.name].result(WAIT_S)
    with pytest.raises(SourceError, match=rf"^source.topic_pattern: '{base}-mm' is not among them any more, and"):
        run(spark, config, once=True)
    Topic(broker, f"{base}-zz").send([as_record(rows[0])])
    lossy = config_of(tmp_path, servers, pattern, options={"failOnDataLoss": False})
    assert run(spark, lossy, once=True).counts["input"] == 1
    with pytest.raises(SourceError, match=r"^source.topic_pattern: 'x.*' matches no topic of"):
        run(spark, config_of(tmp_path, servers, "x.*"), once=True)
