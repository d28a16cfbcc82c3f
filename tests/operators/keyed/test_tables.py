"""Keyed tables end to end, on Spark: equal to SQL whatever the batches, shards and stores."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.config.load import parse_config
from sessionlake.errors import ConfigError, PipelineStateError
from sessionlake.serve.queries import query_tables
from sessionlake.stream.run import run
from sessionlake.testing.tables import TableHarness
from sessionlake.warehouse.tables import Tables
from tests.operators.keyed.table_support import (
    EVENTS,
    MINUTE,
    changes,
    latest,
    live,
    run_files,
    table_config,
    table_sections,
    write_events,
)
from tests.support import write_rows


def test_table_equals_sql_also_after_lost_stores_and_other_shards(spark: SparkSession, tmp_path: Path) -> None:
    config = table_config(tmp_path)
    run_files(spark, tmp_path, config, range(2))
    shutil.rmtree(config.driver_store_dir)
    write_events(tmp_path, range(2, 4))
    run(spark, config, once=True)
    more = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"shards": 3})})
    run_files(spark, tmp_path, more, range(4, 6))
    expected = latest(EVENTS)
    assert live(spark, more) == expected
    assert 0 < len(expected) < 7
    columns, rows = query_tables(more, "select * from table_live order by table_key", 100)
    assert columns == ["table_key", "event_time", "v", "s", "revision", "event_id"]
    assert [(row[0], *row[2:4]) for row in rows] == [(key, *rest) for key, _, *rest in expected]
    assert sorted(sessionlake.read_table(more).fetchall()) == sorted(rows)
    assert sorted(map(tuple, sessionlake.read_table(spark, more).collect())) == sorted(
        map(tuple, spark.createDataFrame(sessionlake.read_table(more).to_arrow_table()).collect())
    )


@pytest.mark.slow
def test_every_batch_on_spark_does_what_the_harness_does(spark: SparkSession, tmp_path: Path) -> None:
    config = table_config(tmp_path, retention="10 minutes", shards=3)
    columns = {"v": "long", "s": "string"}
    with TableHarness(columns, retention="10 minutes", event_id="id") as harness:
        run_files(spark, tmp_path, config, range(6))
        for number in range(6):
            some = EVENTS[number * 10 : number * 10 + 10]
            harness.process([*({**row, "deleted": row["op"] == "d"} for row in some), {"key": None}])
    table = changes(config)
    at = table.schema.get_field_index("event_time")
    found = table.set_column(at, "event_time", table["event_time"].cast("int64")).to_pylist()
    expected = harness.changelog()
    assert len(found) == len(expected)
    names = ("op", "table_key", "event_time", "v", "s", "revision", "event_id", "cause")
    told, wanted = ([[row[name] for name in names] for row in rows] for rows in (found, expected))
    assert sorted(told, key=repr) == sorted(wanted, key=repr)
    last = Tables.of(spark, config)["table_changelog"].last_commit()
    assert last is not None
    assert last.metadata["state"] == harness.state
    batches = query_tables(config, "select input, accepted, dead, changed, superseded, unchanged from batches", 100)[1]
    assert len(batches) == 6
    assert all(row[0] == row[1] + row[2] and row[1] == sum(row[3:]) for row in batches)
    # Some came after a deletion that is forgotten.
    assert query_tables(config, "select count(*) from dead_letters where reason = 'beyond retention'", 1)[1][0][0] > 0


def test_all_columns_but_those_of_the_event_where_none_are_named(spark: SparkSession, tmp_path: Path) -> None:
    config = table_config(tmp_path, columns=None, delete_when=None)
    write_rows(tmp_path, "0.json", [{"key": "a", "time_us": 1, "id": "1", "v": 3, "s": "x"}])
    run(spark, config, once=True)
    # A column that comes later is none of the table's.
    write_rows(tmp_path, "later.json", [{"key": "z", "time_us": MINUTE, "v": 7, "more": 1}])
    run(spark, config, once=True)
    assert sessionlake.read_table(config).columns == ["table_key", "event_time", "v", "s", "revision", "event_id"]
    assert sessionlake.read_table(config).filter("table_key = 'z'").fetchall()[0][2] == 7


@pytest.mark.slow
def test_values_of_all_types_come_back_from_the_store_and_from_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    source = {"kind": "delta", "path": "source"}
    config = table_config(
        tmp_path, columns=None, delete_when="`key` = 'gone' and event_time > timestamp '1970-01-01'", source=source
    )
    config = config.model_copy(update={"event": config.event.model_copy(update={"id": None})})
    path = str(tmp_path / "source")
    rows = """
        select * from values ('a', 1, 1L, 2.5D, 'x', true, date'2024-02-29', timestamp'2024-02-29 12:00:00.123456', 1.25BD, X'00ff', 1),
            ('b', 2, null, null, null, null, null, null, null, null, null), ('gone', 3, 1L, 2.5D, 'x', true, null, null, null, null, 1)
        as t(key, time_us, l, d, s, b, dt, ts, dec, bin, `id`)"""
    frame = spark.sql(rows)
    frame.write.format("delta").save(path)
    run(spark, config, once=True)
    columns = "l, d, s, b, dt, ts, dec, bin, id"
    expected = sorted(map(tuple, frame.where("key <> 'gone'").selectExpr("key", *columns.split(", ")).collect()))
    found = sessionlake.read_table(spark, config).selectExpr("table_key", *columns.split(", "))
    assert sorted(map(tuple, found.collect()), key=lambda row: row[0]) == expected
    # From the store, by a row that is the same, and after it is lost.
    for n in range(2):
        frame.where("key = 'a'").write.format("delta").mode("append").save(path)
        run(spark, config, once=True)
        batches = query_tables(config, "select unchanged from batches order by batch_id desc limit 1", 1)[1]
        assert batches == [(1,)], n
        shutil.rmtree(config.driver_store_dir)


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        (
            {"table": {"order": "offset"}},
            "table.order: 'offset' goes with records of Kafka and with rows that are taken back, and source.kind is 'files'; write 'time'",
        ),
        ({"table": {"order": "newest"}}, "table.order: 'newest' is not allowed"),
        ({"table": {"columns": []}}, "table.columns"),
        ({"table": {"columns": ["v", "V"]}}, "table.columns: 'V' is there twice"),
        ({"table": {"columns": ["Revision"]}}, "table.columns: 'Revision' is a column of every table"),
        ({"table": {"retention": "0 seconds"}}, "table.retention: '0 seconds' must be longer than zero"),
        ({"table": {"retention": "soon"}}, "table.retention: 'soon'"),
        ({"table": {"beyond_retention": "emit"}}, "table.beyond_retention: 'emit' is not allowed"),
        ({"table": {"delete_when": "op ="}}, "table.delete_when: 'op =' is no expression"),
        ({"table": {"delete_when": "rand() < 1"}}, "table.delete_when: 'rand' is not listed"),
        ({"table": {"grace": "1 day"}}, "table.grace"),
        (
            {"aggregates": {"total": "sum(v)"}},
            "aggregates: goes with [session] or [window] or [group], and not with [table]; remove it",
        ),
        ({"session": {"gap": "1 day"}}, "table: can't be used with [session]"),
        ({"event": {"time": "t"}}, "event.key: is missing"),
        ({"event": {"key": "k"}}, "event.time: is missing"),
        (
            {"sink": {"kafka": {"bootstrap_servers": "a:1", "topic": "t", "emit": "final"}}},
            "sink.kafka.emit: 'final' is of rows that close",
        ),
        (
            {
                "source": {"kind": "kafka", "topic": "t", "bootstrap_servers": "a:1", "format": "json"},
                "table": {"order": "offset", "retention": "1 day"},
            },
            "table.retention: goes with order = 'time'",
        ),
    ],
)
def test_wrong_combinations_are_told_in_one_line(tmp_path: Path, sections: dict[str, Any], told: str) -> None:
    raw = {**table_sections(), "table": {}, **sections}
    with pytest.raises(ConfigError) as raised:
        parse_config(raw, tmp_path)
    assert str(raised.value).startswith(told)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"delete_when": "v"}, "table.delete_when: 'v' is of type bigint"),
        ({"delete_when": "event_time < now()"}, "table.delete_when: 'event_time < now()' reads the clock"),
    ],
)
def test_a_condition_that_can_not_be_is_told_before_the_first_batch(
    spark: SparkSession, tmp_path: Path, table: dict[str, Any], told: str
) -> None:
    config = table_config(tmp_path, **table)
    write_events(tmp_path, range(1))
    with pytest.raises(ConfigError) as raised:
        run(spark, config, once=True)
    assert str(raised.value).startswith(told)
    assert not Path(config.pipeline.warehouse, "table_changelog").exists()


@pytest.mark.slow
def test_what_the_table_is_bound_to_can_not_change_and_retention_can(spark: SparkSession, tmp_path: Path) -> None:
    config = table_config(tmp_path)
    run_files(spark, tmp_path, config, range(1))
    for name, value in (("columns", ["v"]), ("delete_when", "op = 'x'")):
        with pytest.raises(PipelineStateError, match=f"^table.{name}: changed"):
            run(spark, table_config(tmp_path, **{name: value}), once=True)
    shorter = table_config(tmp_path, retention="1 hour", beyond_retention="drop")
    run_files(spark, tmp_path, shorter, range(1, 6))
    assert live(spark, shorter) == latest(EVENTS)


@pytest.mark.slow
def test_rows_of_before_the_retention_count_as_the_config_says(spark: SparkSession, tmp_path: Path) -> None:
    config = table_config(tmp_path, retention="1 minute", beyond_retention="drop")
    write_rows(tmp_path, "0.json", [{**EVENTS[4], "key": "a", "time_us": 60 * MINUTE}])
    run(spark, config, once=True)
    write_rows(tmp_path, "1.json", [{**EVENTS[6], "key": "b", "time_us": 10 * MINUTE}])
    run(spark, config, once=True)
    assert query_tables(config, "select sum(dropped), sum(dead), sum(input) from batches", 1)[1] == [(1, 0, 2)]
    assert live(spark, config) == []
