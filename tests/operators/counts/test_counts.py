"""Windows by count end to end, on Spark: equal to DuckDB whatever the batches, shards and stores."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, parse_config
from sessionlake.errors import ConfigError
from sessionlake.operators.counts.operator import CountedWindows
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.operators.counts.count_support import (
    MESSAGES,
    count_config,
    count_sections,
    live,
    run_files,
    sent,
    tumbling,
    write_messages,
)
from tests.oracle.counts import Machine
from tests.support import write_rows


def test_windows_by_key_equal_sql_also_after_lost_stores_and_other_shards(spark: SparkSession, tmp_path: Path) -> None:
    config = count_config(tmp_path)
    run_files(spark, tmp_path, config, range(2))
    shutil.rmtree(config.driver_store_dir)
    write_messages(tmp_path, range(2, 5))
    run(spark, config, once=True)
    more = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"shards": 3})})
    run_files(spark, tmp_path, more, range(5, 6))
    assert live(spark, more) == tumbling(3, whole=True)
    tables = Tables.of(spark, config)
    counted = tables[schemas.DEAD_LETTERS].read().count()
    last = tables["window_changelog"].last_commit()
    assert counted == 6
    assert last is not None
    assert last.metadata["state"]["positions"] == {"events": {"0": 60}}
    # Of each key one slice is left.
    assert {row["slice_key"] for row in _slices(spark, more)} == set("abcd")
    assert len(_slices(spark, more)) == 4


def _slices(spark: SparkSession, config: Config) -> list[Any]:
    return merged_rows(Tables.of(spark, config), of=CountedWindows.TABLES[0].changelog).collect()


@pytest.mark.slow
def test_batches_do_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    config = count_config(tmp_path, emit={"early": "batch"}, shards=1)
    write_messages(tmp_path, range(6))
    run(spark, config, bootstrap=True)
    assert live(spark, config) == tumbling(3, whole=False)


@pytest.mark.slow
def test_case_1_of_the_seed_by_count_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    window = {"per": "partition", "size": 3}
    config = count_config(tmp_path, emit={"early": "1 minute"}, **window)
    for number, (time, value) in enumerate([(1_150, 0), (1_201, 5), (1_170, 9)]):
        write_rows(tmp_path, f"{number}.json", [{"key": "k", "time_us": time, "v": value}])
        run(spark, config, once=True)
    # A finite run ends with a tick.
    assert [row[1:6] for row in sent(config)] == [
        (1, 3, 1, 0, "early"),
        (1, 3, 2, 5, "early"),
        (1, 3, 3, 14, "full"),
    ]


@pytest.mark.parametrize(
    ("window", "machine"),
    [
        pytest.param({"kind": "session", "size": None, "max_others": 2}, ("session", 2, 0, 0), marks=pytest.mark.slow),
        pytest.param(
            {"kind": "hopping", "size": 7, "advance": 3, "offset": 2, "per": "partition"},
            ("grid", 7, 3, 2),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_every_batch_on_spark_sends_what_a_machine_per_window_sends(
    spark: SparkSession, tmp_path: Path, window: dict[str, Any], machine: tuple[str, int, int, int]
) -> None:
    config = count_config(tmp_path, shards=3, **window)
    write_messages(tmp_path, range(6))
    run(spark, config, once=True)
    model = Machine(*machine, per_key=False, early="off", retention=3_600_000_000)
    expected = []
    for batch in range(6):
        given = [(key, 0, time, value) for key, time, value in MESSAGES[10 * batch : 10 * batch + 10]]
        expected += [(*row, batch) for row in model.batch(given, 0)[0]]
    assert sent(config) == sorted(expected)
    assert expected


def test_events_without_key_and_time_are_counted_by_the_clock(spark: SparkSession, tmp_path: Path) -> None:
    sections = count_sections(size=2, emit={"early": "batch"})
    sections["event"] = {"id": "v"}
    (tmp_path / "events").mkdir()
    config = parse_config(sections, tmp_path)
    write_rows(tmp_path, "0.json", [{"v": value} for value in (1, 2, 3)])
    run(spark, config, once=True)
    assert [row[:6] for row in sent(config)] == [("", 1, 2, 2, 3, "full"), ("", 3, 4, 1, 3, "early")]
    assert Tables.of(spark, config)["window_changelog"].last_commit().metadata["state"]["watermark_us"] > 1e15  # type: ignore[union-attr]


def test_only_windows_by_count_do_without_a_time(tmp_path: Path) -> None:
    sections = count_sections()
    sections["event"] = {"key": "key"}
    assert parse_config(sections, tmp_path).rebuild_settings()["window.per"] == "key"
    # Without a key there is one order only that does not hang on batches: that of each partition.
    assert parse_config({**sections, "event": {}}, tmp_path).rebuild_settings()["window.per"] == "partition"
    sections["window"] = {"kind": "tumbling", "size": "1 hour", "retention": "1 day"}
    with pytest.raises(ConfigError, match=r"^event\.time: is missing; add it to the config$"):
        parse_config(sections, tmp_path)


@pytest.mark.slow
def test_messages_of_a_delta_table_come_in_the_order_of_its_versions(spark: SparkSession, tmp_path: Path) -> None:
    source = {"kind": "delta", "path": "source", "max_files_per_batch": 2}
    config = count_config(tmp_path, source=source, emit={"early": "batch"})
    path = str(tmp_path / "source")

    def add(first: int, last: int) -> None:
        frame = spark.createDataFrame(MESSAGES[first:last], "key string, time_us long, v long").coalesce(1)
        frame.write.format("delta").mode("append").save(path)

    for first in (0, 13, 14):
        add(first, {0: 13, 13: 14, 14: 40}[first])
    run(spark, config, once=True)
    shutil.rmtree(config.driver_store_dir)
    add(40, 60)
    run(spark, config, once=True)
    last = Tables.of(spark, config)["window_changelog"].last_commit()
    assert last is not None
    assert last.metadata["batch_id"] > 1
    assert live(spark, config) == tumbling(3, whole=False)


@pytest.mark.parametrize(
    ("window", "emit", "told"),
    [
        ({"size": None}, {}, "window.size: is missing"),
        ({"size": 0}, {}, "window.size: 0 is too small; write 1 or more"),
        ({"size": "1 hour"}, {}, "window.size"),
        (
            {"advance": 1},
            {},
            "window.advance: is not used with kind = 'tumbling'; remove it, or write one of 'hopping'",
        ),
        ({"kind": "hopping"}, {}, "window.advance: is missing"),
        ({"kind": "hopping", "advance": 4}, {}, "window.advance: 4 must be"),
        ({"kind": "hopping", "size": 10_001, "advance": 2, "retention_count": 20_000}, {}, "window.advance: 2 cuts"),
        ({"kind": "sliding", "offset": 1}, {}, "window.offset: is not used with kind = 'sliding'"),
        ({"offset": -1}, {}, "window.offset: -1"),
        (
            {"max_others": 1},
            {},
            "window.max_others: is not used with kind = 'tumbling'; remove it, or write one of 'session'",
        ),
        ({"kind": "session", "size": 3, "max_others": 1}, {}, "window.size: is not used with kind = 'session'"),
        ({"kind": "session", "size": None}, {}, "window.max_others: is missing"),
        ({"kind": "session", "size": None, "max_others": -1}, {}, "window.max_others: -1"),
        (
            {"kind": "session", "size": None, "max_others": 1, "per": "key"},
            {},
            "window.per: is not used with kind = 'session'",
        ),
        ({"retention_count": 2}, {}, "window.retention_count: 2 is less than the 3"),
        ({"retention_count": None}, {}, "window.retention_count: is missing"),
        ({"retention": "0 seconds"}, {}, "window.retention: '0 seconds'"),
        ({"grace": "1 minute"}, {}, "window.grace: is not used with by = 'count'; remove it, or write one of 'time'"),
        ({"exits": False}, {}, "window.exits: is not used with by = 'count'"),
        ({"per": "stream"}, {}, "window.per: 'stream' is not allowed"),
        ({"by": "size"}, {}, "window.by: 'size' is not allowed"),
        ({}, {"full": "end"}, "emit.full: is not used with by = 'count'"),
        ({}, {"late": "batch"}, "emit.late: is not used with by = 'count'"),
        ({}, {"early": "often"}, "emit.early: 'often' is no policy"),
    ],
)
def test_wrong_combinations_are_told_in_one_line(
    tmp_path: Path, window: dict[str, Any], emit: dict[str, Any], told: str
) -> None:
    given: dict[str, Any] = {
        "kind": "tumbling",
        "by": "count",
        "size": 3,
        "retention": "1 hour",
        "retention_count": 100,
        **window,
    }
    raw = {
        "pipeline": {"name": "test", "warehouse": "w"},
        "source": {"kind": "files", "path": "e", "format": "json"},
        "event": {"key": "key", "time": "t"},
        "window": {name: value for name, value in given.items() if value is not None},
        "emit": emit,
    }
    with pytest.raises(ConfigError) as raised:
        parse_config(raw, tmp_path)
    assert str(raised.value).startswith(told)
    assert "\n" not in str(raised.value)
