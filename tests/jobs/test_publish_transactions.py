"""A topic whose steps are transactions: readers of committed records see each change once, whatever is killed meanwhile."""

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

import sessionlake
from infra.kafka.broker import Broker
from sessionlake.config.load import Config, load_config
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError, FencedError, JobError, PipelineStateError, SourceError
from sessionlake.jobs.followers.positions import followers_of
from sessionlake.jobs.forget import forget
from sessionlake.jobs.publish import publish, sinks_of
from sessionlake.jobs.publish.transactions import POSITIONS, TransactionalTopic
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import FIRST, SECOND, CrashError, crash_at, run_once
from tests.jobs.publish_support import assert_publish_killed, publish_once, some_rows, trim, vacuum_changes, with_sink
from tests.operator_lake import OperatorLake
from tests.operators_table import LAKES
from tests.sources.kafka_support import WAIT_S, Topic
from tests.support import make_config, write_config, write_rows

Key = tuple[tuple[str, Any], ...]


def committed(broker: Broker, topic: str) -> Iterator[Message]:
    """Yield the records of committed transactions, and of no others, partition by partition."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "test", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0})
    for partition in consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None, "a transaction is open"
            if message.error() is not None:
                break
            yield message
    consumer.close()


def histories(broker: Broker, topic: str) -> dict[str, list[dict[str, Any] | None]]:
    """Return the values of each key in their order; None for a deletion."""
    found = defaultdict(list)
    for message in committed(broker, topic):
        value = message.value()
        found[(message.key() or b"").decode()].append(None if value is None else json.loads(value))
    return found


def assert_live(config: Config, broker: Broker) -> int:
    """Check that the topic is the live view, and that each of its records changes something; return how many there are."""
    topic = config.sink.kafka.topic if config.sink.kafka else ""
    found = histories(broker, topic)
    for values in found.values():
        assert values[0] is not None, "a row is deleted that was not there"
        assert all(one != other for one, other in itertools.pairwise(values)), "a record came twice"
    view = sessionlake.read(config)
    shown = [name for name in view.columns if name not in {"state", "final"}]
    rows = view.select(", ".join(f'"{name}"' for name in shown)).fetchall()
    live = {key: values[-1] for key, values in found.items() if values[-1] is not None}
    assert len(live) == len(rows)
    identity = list(json.loads(next(iter(live)))) if live else []
    place = {name: shown.index(name) for name in identity}
    keys = {tuple(plain(row[place[name]]) for name in identity) for row in rows}
    assert {tuple(plain(value) for value in json.loads(key).values()) for key in live} == keys
    counts = sorted(row[shown.index("revision")] for row in rows)
    assert sorted(value["revision"] for value in live.values() if value) == counts
    return sum(map(len, found.values()))


def plain(value: Any) -> Any:
    if isinstance(value, str) and value[4:5] == "-" and value.endswith("Z"):
        value = datetime.fromisoformat(value)
    return value.timestamp() if isinstance(value, datetime) else value


def in_topic(lake: OperatorLake, broker: Broker, topic: str) -> Config:
    servers = broker.bootstrap_servers
    return with_sink(lake, f"[sink.kafka]\nbootstrap_servers = '{servers}'\ntopic = '{topic}'\ntransactions = true")


def step(spark: SparkSession, config: Config, *, anew: bool = False) -> Any:
    assert config.sink.kafka is not None
    return TransactionalTopic(Tables.of(spark, config), config, config.sink.kafka).step(anew=anew)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAKES)
def test_each_change_of_every_operator_comes_once(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lake = LAKES[name](tmp_path / "lake", tmp_path / "events")
    config = in_topic(lake, broker, f"results-{tmp_path.name}")
    before = 0
    for number, files in enumerate((FIRST, SECOND)):
        lake.write_files(files)
        run_once(spark, lake)
        for _ in range(2):
            with crash_at(monkeypatch, "transaction_sent"), pytest.raises(CrashError):
                step(spark, config)
        assert sum(map(len, histories(broker, f"results-{tmp_path.name}").values())) == before
        with crash_at(monkeypatch, "transaction_committed"), pytest.raises(CrashError):
            step(spark, config)
        # The step was made, though the process that made it did not live to know.
        assert step(spark, config) is None
        after = assert_live(config, broker)
        assert after > before
        before = after
        if number == 0:
            trim(spark, lake.config)
            lake.correct(spark)


def small(root: Path, broker: Broker, **sink: Any) -> Config:
    root.mkdir(parents=True, exist_ok=True)
    session = {"gap": "10 seconds", "grace": "1 minute", "retention": "1 hour"}
    kafka = {"bootstrap_servers": broker.bootstrap_servers, "topic": f"s-{root.name}", "transactions": True, **sink}
    return make_config(root, session=session, sink={"kafka": kafka}, compact={"safety": "0 seconds"})


def ran(spark: SparkSession, config: Config, name: str, *rows: tuple[str, int]) -> None:
    events = [{"key": key, "time_us": second * 1_000_000, "v": 1} for key, second in rows]
    write_rows(Path(config.directory), name, events)
    run(spark, config, once=True)


def test_a_step_is_one_transaction(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    config = small(tmp_path, broker)
    ran(spark, config, "a.json", ("ann", 100), ("bob", 100), ("bob", 115))
    assert step(spark, config) is not None
    assert assert_live(config, broker) == 3


@pytest.mark.slow
def test_steps_are_transactions(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    config = small(tmp_path, broker, max_lag=5)
    ran(spark, config, "a.json", ("ann", 100), ("bob", 100), ("bob", 115))
    assert followers_of(config)[0].behind == 1
    made = publish(spark, config, once=True)
    assert (made.steps, made.batches) == (1, 0)
    assert assert_live(config, broker) == 3
    assert step(spark, config) is None
    assert followers_of(config)[0].behind == 0
    # Bob's two sessions become one: one of the records deletes, and Ann's stays as it is.
    ran(spark, config, "b.json", ("bob", 108))
    done = step(spark, config)
    assert (done.rows, done.deleted) == (1, 1)
    assert assert_live(config, broker) == 5
    positions = [json.loads(message.value() or b"") for message in committed(broker, f"s-{tmp_path.name}{POSITIONS}")]
    assert [json.loads(position["seen"])["batch_id"] for position in positions] == [0, 1]


@pytest.mark.slow
def test_records_are_those_of_a_topic_without_transactions(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    config = small(tmp_path, broker)
    write_rows(tmp_path, "a.json", some_rows(1))
    run(spark, config, once=True)
    publish(spark, config, once=True)
    kafka = {"topic": f"plain-{tmp_path.name}", "transactions": False}
    assert config.sink.kafka is not None
    other = config.sink.kafka.model_copy(update=kafka)
    publish(spark, config.model_copy(update={"sink": config.sink.model_copy(update={"kafka": other})}), once=True)
    both = [histories(broker, topic) for topic in (f"s-{tmp_path.name}", f"plain-{tmp_path.name}")]
    # Without transactions some records come twice.
    assert {key: values[-1] for key, values in both[0].items()} == {key: values[-1] for key, values in both[1].items()}
    assert len(both[0]) > 5


@pytest.mark.slow
def test_another_process_is_fenced(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    config = small(tmp_path, broker)
    assert config.sink.kafka is not None
    ran(spark, config, "a.json", ("ann", 100))
    one, other = (TransactionalTopic(Tables.of(spark, config), config, config.sink.kafka) for _ in range(2))
    assert one.step() is not None
    assert other.step() is None
    ran(spark, config, "b.json", ("ann", 105))
    with pytest.raises(FencedError, match="another process publishes to"):
        one.step()
    assert other.step() is not None
    assert assert_live(config, broker) == 2


@pytest.mark.slow
def test_a_topic_that_has_records_of_others_is_refused(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    config = small(tmp_path, broker)
    topic = Topic(broker, f"s-{tmp_path.name}")
    ran(spark, config, "a.json", ("ann", 100), ("bob", 100))
    assert step(spark, config) is not None
    # It is made again: all rows are sent to it.
    admin = topic.admin()
    admin.delete_topics([topic.name])[topic.name].result(WAIT_S)
    while topic.name in admin.list_topics(timeout=WAIT_S).topics:
        pass
    assert step(spark, config).rows is None
    assert assert_live(config, broker) == 2
    own = Topic.create(broker)
    named = small(tmp_path / "lake", broker, topic=own.name)
    ran(spark, named, "a.json", ("cid", 100))
    gone = '{"session_key":"eve","session_start":"1970-01-01T00:00:00.000000Z"}'
    own.send([{"key": gone, "value": "{}"}])
    with pytest.raises(
        PipelineStateError, match="has records, and no transaction of this pipeline; load all rows again"
    ):
        step(spark, named)
    assert step(spark, named, anew=True).rows is None
    found = histories(broker, own.name)
    assert found.pop(gone)[-1] is None
    assert [json.loads(key)["session_key"] for key in found] == ["cid"]


@pytest.mark.slow
def test_lost_changes_and_a_rebuilt_pipeline(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    config = small(tmp_path, broker)
    ran(spark, config, "a.json", ("ann", 100), ("bob", 100), ("bob", 115))
    step(spark, config)
    ran(spark, config, "b.json", ("bob", 108))
    for number in range(2):
        ran(spark, config, f"c{number}.json", ("zoe", 120 + 100 * number))
    trim(spark, config)
    vacuum_changes(config)
    step(spark, config)
    live = {key: values[-1] for key, values in histories(broker, f"s-{tmp_path.name}").items() if values[-1]}
    assert sorted(value["session_key"] for value in live.values() if value) == ["ann", "bob", "zoe", "zoe"]
    assert step(spark, config) is None


@pytest.mark.slow
def test_forget_waits_for_the_deletes_of_the_topic(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    config = small(tmp_path, broker)
    for number in range(2):
        ran(spark, config, f"{number}.json", ("ann", 100 + number), ("bob", 100 + number))
        if number == 0:
            step(spark, config)
    with pytest.raises(JobError, match=r"publish has not read the deletes yet; run `sessionlake publish --once`"):
        forget(spark, config, ["ann"])
    step(spark, config)
    assert forget(spark, config, ["ann"]).counts["found"] == 0
    assert_live(config, broker)


@pytest.mark.slow
def test_a_topic_that_is_made_again_while_it_is_served(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    config = small(tmp_path, broker)
    assert config.sink.kafka is not None
    ran(spark, config, "a.json", ("ann", 100), ("bob", 100))
    served = TransactionalTopic(Tables.of(spark, config), config, config.sink.kafka)
    served.step()
    admin, topic = Topic(broker, f"s-{tmp_path.name}").admin(), f"s-{tmp_path.name}"
    admin.delete_topics([topic])[topic].result(WAIT_S)
    while topic in admin.list_topics(timeout=WAIT_S).topics:
        pass
    ran(spark, config, "b.json", ("zoe", 100))
    assert served.step() is not None
    assert assert_live(config, broker) == 3


@pytest.mark.slow
def test_records_that_others_have_sent_meanwhile_are_told(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    config = small(tmp_path, broker)
    assert config.sink.kafka is not None
    plain = config.sink.model_copy(update={"kafka": config.sink.kafka.model_copy(update={"transactions": False})})
    ran(spark, config, "a.json", ("bob", 100))
    step(spark, config)
    ran(spark, config, "b.json", ("bob", 115))
    publish(spark, config.model_copy(update={"sink": plain}), once=True)
    ran(spark, config, "c.json", ("bob", 108))
    with pytest.raises(PipelineStateError, match="has records, and no transaction of this pipeline"):
        step(spark, config)
    step(spark, config, anew=True)
    live = [values[-1] for values in histories(broker, f"s-{tmp_path.name}").values()]
    assert [value["event_count"] for value in live if value] == [3]


@pytest.mark.slow
def test_a_rebuilt_pipelines_errors_come_whole(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    name = f"e-{tmp_path.name}"
    for number in range(2):
        config = small(tmp_path / str(number), broker, topic=f"s-{tmp_path.name}", errors=name)
        for batch in range(2 - number):
            ran(spark, config, f"{batch}.json", ("", 100), ("ann", 100))
        publish(spark, config, once=True, resync=bool(number))
    assert len(list(committed(broker, name))) == 3


@pytest.mark.slow
def test_errors_of_kafka_are_not_taken_for_lost_changes(
    spark: SparkSession, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic.create(broker, max_message_bytes="200")
    config = small(tmp_path, broker, topic=topic.name)
    ran(spark, config, "a.json", ("ann", 100))
    with pytest.raises(SourceError, match="larger than its topic takes"):
        step(spark, config)
    assert "all rows are sent again" not in caplog.text
    for option, told in (
        ("kafka.acks", "^sink.kafka.options: "),
        ("kafka.max.request.size", "^sink.kafka: a record is larger"),
    ):
        other = small(tmp_path, broker, topic=f"o-{tmp_path.name}", options={option: "1"})
        with pytest.raises(SourceError, match=told):
            step(spark, other)


@pytest.mark.slow
def test_a_transaction_that_takes_too_long_blames_no_other_process(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path, broker, options={"kafka.transaction.timeout.ms": 1000})
    ran(spark, config, "a.json", ("ann", 100))
    ids = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    begun = time.monotonic()

    def wait(point: str) -> None:
        # The broker looks for transactions that take too long every 10 s.
        while point == "transaction_sent" and time.monotonic() - begun < 15:
            ids.list_topics(timeout=WAIT_S)

    monkeypatch.setattr(failpoints, "hit", wait)
    with pytest.raises(SourceError, match="a transaction took longer than 1 s, and the broker ended it"):
        step(spark, config)


@pytest.mark.slow
def test_final_rows(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    config = small(tmp_path, broker, emit="final")
    ran(spark, config, "a.json", ("ann", 100), ("bob", 150))
    assert step(spark, config).rows is None
    assert histories(broker, f"s-{tmp_path.name}") == {}
    ran(spark, config, "b.json", ("zoe", 175))
    assert (step(spark, config).rows, len(histories(broker, f"s-{tmp_path.name}"))) == (1, 1)
    ran(spark, config, "c.json", ("zoe", 1000))
    step(spark, config)
    keys = sorted(json.loads(key)["session_key"] for key in histories(broker, f"s-{tmp_path.name}"))
    assert keys == ["ann", "bob", "zoe"]


@pytest.mark.slow
def test_late_events_and_dead_letters_come_once(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path, broker, errors=f"e-{tmp_path.name}")
    for number, point in enumerate(("errors_sent", "errors_committed")):
        ran(spark, config, f"{number}.json", ("ann", 100_000), ("", 100_000), ("", 100_001))
        with crash_at(monkeypatch, point), pytest.raises(CrashError):
            publish(spark, config, once=True)
        publish(spark, config, once=True)
        found = [json.loads(message.value() or b"") for message in committed(broker, f"e-{tmp_path.name}")]
        assert sorted(row["batch_id"] for row in found) == [batch for batch in range(number + 1) for _ in range(2)]


@pytest.mark.slow
def test_sigkill_in_the_middle_of_a_transaction(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    kafka = {"bootstrap_servers": broker.bootstrap_servers, "topic": f"k-{tmp_path.name}", "transactions": True}
    session = {"gap": "10 seconds", "grace": "1 hour", "retention": "2 hours"}
    path = write_config(tmp_path, session=session, sink={"kafka": kafka})
    config = load_config(path)
    for number in range(2):
        write_rows(tmp_path, f"{number}.json", some_rows(number))
        run(spark, config, once=True)
        for point in ("transaction_sent", "transaction_committed"):
            assert_publish_killed(path, point)
        assert "0 steps" in publish_once(path).stdout
        assert_live(config, broker)


def test_what_the_broker_does_not_take_is_one_line(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    config = small(tmp_path, broker, options={"kafka.transaction.timeout.ms": 1_000_000_000})
    ran(spark, config, "a.json", ("ann", 100))
    with pytest.raises(SourceError, match=r"^sink.kafka.options: the broker takes no transaction that may last"):
        step(spark, config)
    assert last_batch(Tables.of(spark, config)).batch_id == 0
    plain_sink = small(tmp_path / "b", broker, transactions=False)
    with pytest.raises(ConfigError, match=r"^--resync: loads all rows of"):
        sinks_of(plain_sink, resync=True)
    assert sinks_of(config, resync=True) == ["kafka"]
