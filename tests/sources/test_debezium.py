"""Changes of a database's rows, as Debezium sends them to a real broker, in a keyed table: compared with a plain dictionary."""

import json
import random
import shutil
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake import Event, Kafka, KeyedTable, Pipeline
from sessionlake.config.load import Config, load_config
from sessionlake.errors import ConfigError
from sessionlake.serve.queries import query_tables
from sessionlake.sources.kafka import unwrapped
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import crash_at
from tests.sources.debezium_support import CONFIG, UNSAID, Database, Row, assert_counted, envelope, table
from tests.sources.kafka_support import T0, Topic


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return Topic.create(broker)


@pytest.fixture
def config(topic: Topic, tmp_path: Path) -> Config:
    path = tmp_path / "customers.toml"
    path.write_text(CONFIG.format(servers=topic.broker.bootstrap_servers, topic=topic.name))
    return load_config(path)


def test_a_table_equals_the_database(spark: SparkSession, topic: Topic, config: Config) -> None:
    database = Database(random.Random(1))
    for _ in range(2):
        topic.send(database.records(150))
        run(spark, config, once=True)
        assert table(config) == database.live()
    assert_counted(config, database)
    assert database.ignored
    reasons = {row[0] for row in query_tables(config, "select distinct reason from dead_letters", 10)[1]}
    assert {"no change event", "truncate: the rows of the table are gone there, and not here"} == reasons
    time = query_tables(config, "select max(epoch_ms(event_time)) from table_live", 1)[1]
    assert T0 * 1000 < time[0][0] <= (T0 + database.sent) * 1000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_history_with_crashes_and_lost_stores(
    spark: SparkSession, topic: Topic, config: Config, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    database = Database(random.Random(seed))
    for point in ("computed", "before_dead", "before_changelog", "after_changelog", None):
        topic.send(database.records(database.rng.randrange(200)))
        if point is not None:
            with crash_at(monkeypatch, point), suppress(Exception):
                run(spark, config, once=True)
            topic.send(database.records(20))
        if database.rng.random() < 0.5:
            shutil.rmtree(config.driver_store_dir, ignore_errors=True)
        run(spark, config, once=True)
        assert table(config) == database.live()
    assert_counted(config, database)


@pytest.mark.slow
def test_a_value_that_nothing_says_is_null_and_counted(spark: SparkSession, topic: Topic, config: Config) -> None:
    database = Database(random.Random(2))
    row = {"id": 1, "name": "ann", "notes": UNSAID, "spent": 1.5}
    topic.send([database.record(1, envelope("u", None, row))])
    run(spark, config, once=True)
    assert table(config) == [("1", "ann", None, 1.5)]
    # The next batch says it, and the one after that not.
    topic.send([database.record(1, envelope("u", None, {**row, "notes": "long"}))])
    run(spark, config, once=True)
    topic.send([database.record(1, envelope("u", None, {**row, "spent": 2.5}))])
    run(spark, config, once=True)
    assert table(config) == [("1", "ann", "long", 2.5)]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'order = "offset"',
            'order = "time"',
            "table.order: changes of rows hold in the order of the topic; write order = 'offset'",
        ),
        (
            '"debezium"',
            '"debezium"\ntombstones = true',
            "source.tombstones: a record without a value says nothing more",
        ),
        ('"debezium"', '"maxwell"', "source.envelope"),
        (
            "[event]",
            "[event]\nwhere = \"name = 'ann'\"",
            "write table.delete_when = \"not coalesce(name = 'ann', false)\"",
        ),
        (
            "shards = 2",
            'archive = "all"',
            "pipeline.archive: 'all' keeps rows, and records with an envelope hold two each",
        ),
        (
            '[table]\norder = "offset"\ncolumns = ["name", "notes", "spent"]',
            "[group]",
            "source.envelope: records that are changes of rows go into a [table], and this is a [group]",
        ),
    ],
)
def test_what_does_not_go_with_it_is_one_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "customers.toml"
    path.write_text(CONFIG.format(servers="localhost:9092", topic="pg.public.customers").replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert told in str(caught.value)


def test_the_envelope_is_opened_whatever_is_in_it(spark: SparkSession) -> None:
    good = {"op": "c", "before": None, "after": {"id": 1}}
    rows: list[tuple[Any, tuple[str | None, int | None]]] = [
        ({**good, "source": {"ts_ms": 1_700_000_000_123}}, ("c", 1_700_000_000_123_000)),
        ({**good, "source": {"ts_ns": 1_700_000_000_000_016_000}}, ("c", 1_700_000_000_000_016)),
        ({**good, "source": {"ts_us": 7, "ts_ns": 7_000, "ts_ms": 0}}, ("c", 7)),
        ({**good, "source": {"ts_ms": 1 << 62}}, ("c", None)),
        ({**good, "payload": "mine"}, ("c", None)),
        ({"payload": good, "op": "x"}, ("c", None)),
        ({"op": "d", "before": None}, ("d", None)),
    ]
    values = [json.dumps(value).encode() for value, _ in rows]
    values.append(b'{"op":"c","after":{"id":"\xff\xfe"}}')
    frame = spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)
    found = frame.select(*unwrapped(frame["value"])).collect()
    assert [(row["_op"], row["_source_time"]) for row in found] == [*(wanted for _, wanted in rows), (None, None)]
    assert [bytes(row["body"]) for row in found[:-1]] == [b'{"id":1}'] * 6 + [b"{}"]


def people(**columns: str) -> Pipeline:
    return Pipeline(
        "people",
        warehouse="lake",
        source=Kafka("topic", bootstrap_servers="b:1", format="json", envelope="debezium"),
        event=Event(key="id", time="_source_time", columns=columns),
        operator=KeyedTable(order="offset", columns=["notes", *columns]),
    )


def change(number: int, notes: str | None, *, deleted: bool = False) -> Row:
    return {
        "id": "1",
        "_source_time": datetime.fromtimestamp(number, UTC),
        "offset": number,
        "notes": notes,
        "deleted": deleted,
    }


def test_values_that_are_computed_of_one_that_is_not_said_are_not_said_either() -> None:
    with people(size="length(notes)", loud="concat(notes, '!')").test([change(1, "long")]) as harness:
        (row,) = harness.process([change(2, UNSAID)]).changes
        assert (row["notes"], row["size"], row["loud"]) == ("long", 4, "long!")


def test_a_change_that_is_dated_ahead_is_taken_and_moves_the_watermark_no_further_than_it_may() -> None:
    """If it were refused, the table would differ from the database for ever. The database's clock may be wrong for one change alone."""
    minute, ahead = 60_000_000, 4_000_000_000
    with people().test([change(1, "long")]) as harness:
        put = harness.process([change(ahead, "later")], clock_us=100 * minute)
        assert [(row["op"], row["notes"]) for row in put.changes] == [("upsert", "later")]
        assert (put.dead, harness.watermark_us) == ([], 101 * minute)
        gone = harness.process([change(ahead + 1, None, deleted=True)], clock_us=101 * minute)
        assert [row["op"] for row in gone.changes] == ["delete"]
        assert (gone.dead, harness.watermark_us) == ([], 102 * minute)


@pytest.mark.slow
def test_the_database_is_followed_also_while_its_clock_is_ahead(
    spark: SparkSession, topic: Topic, config: Config
) -> None:
    database, ahead = Database(random.Random(4)), 10**9
    row = {"id": 1, "name": "ann", "notes": None, "spent": 1.5}
    topic.send(
        [database.record(1, envelope("c", None, row, ahead)), database.record(2, envelope("c", None, {**row, "id": 2}))]
    )
    run(spark, config, once=True)
    assert [one[0] for one in table(config)] == ["1", "2"]
    topic.send([database.record(1, envelope("d", row, None, ahead + 1))])
    run(spark, config, once=True)
    assert [one[0] for one in table(config)] == ["2"]
    batch = last_batch(Tables.of(spark, config))
    assert batch.watermark_us is not None
    assert batch.watermark_us <= time.time_ns() // 1000 + config.max_future_skew_us
    assert config.warnings() == []


@pytest.mark.slow
def test_a_table_of_several_databases_has_the_rows_of_each(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Their topics are read as one; a row is named by its topic and its key."""
    shops = [(Topic.create(broker), Database(random.Random(seed))) for seed in (5, 6)]
    text = CONFIG.format(servers=broker.bootstrap_servers, topic="")
    names = json.dumps([topic.name for topic, _ in shops])
    text = text.replace('topic = ""', f"topics = {names}").replace(
        'key = "id"', 'key = ["shop", "id"]\ncolumns = { shop = "_topic" }'
    )
    (tmp_path / "customers.toml").write_text(text)
    config = load_config(tmp_path / "customers.toml")
    for _ in range(2):
        for topic, database in shops:
            topic.send(database.records(60))
        run(spark, config, once=True)
        for topic, database in shops:
            rows = query_tables(
                config, f"select id, name, notes, spent from table_live where shop = '{topic.name}'", 1000
            )[1]
            assert sorted(map(tuple, rows)) == database.live()


@pytest.mark.parametrize("batches", [1, 2])
def test_after_a_delete_nothing_says_the_value_however_batches_are_cut(batches: int) -> None:
    changes = [change(2, None, deleted=True), change(3, UNSAID)]
    with people().test([change(1, "long")]) as harness:
        each = [changes] if batches == 1 else [[one] for one in changes]
        outputs = [harness.process(some) for some in each]
    assert outputs[-1].changes[-1]["notes"] is None
    assert sum(output.counts.get("unknown", 0) for output in outputs) == 1
