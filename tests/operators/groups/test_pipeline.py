"""Groups end to end, on Spark: equal to SQL's GROUP BY whatever the batches, shards and stores."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.config.load import parse_config
from sessionlake.jobs.compact import compact
from sessionlake.operators.groups.operator import Groups
from sessionlake.operators.views import create_schemas
from sessionlake.serve.queries import find_rows, query_tables
from sessionlake.stream.described_kind import described_kind
from sessionlake.stream.run import run
from sessionlake.stream.watermark import NO_WATERMARK
from tests.operators.groups.group_support import (
    AGGREGATES,
    COLUMNS,
    ROWS,
    group_config,
    group_sections,
    grouped,
    live,
    run_files,
)
from tests.support import write_rows


@pytest.mark.slow
def test_groups_equal_sql_after_lost_stores_and_with_other_shards(spark: SparkSession, tmp_path: Path) -> None:
    config = group_config(tmp_path)
    run_files(spark, tmp_path, config, range(1))
    shutil.rmtree(config.driver_store_dir)
    more = group_config(tmp_path, shards=3)
    run_files(spark, tmp_path, more, range(1, 2))
    expected = grouped(ROWS[:30])
    assert live(more) == expected
    columns, [row] = find_rows(more, '["2026-01-01","A"]', None, None, 10)
    found = dict(zip(columns, row, strict=True))
    assert [found[name] for name in COLUMNS.split(", ")] == list(expected[0])
    counts = query_tables(more, "select sum(input), sum(accepted), sum(dead), sum(taken_back) from batches", 1)[1]
    assert counts == [(32, 30, 2, 0)]


@pytest.mark.slow
def test_a_compacted_snapshot_is_gone_on_from(spark: SparkSession, tmp_path: Path) -> None:
    config = group_config(tmp_path)
    run_files(spark, tmp_path, config, range(2))
    compact(spark, config)
    shutil.rmtree(config.driver_store_dir)
    run_files(spark, tmp_path, config, range(2, 6))
    expected = grouped(ROWS)
    assert live(config) == expected
    compact(spark, config)
    assert query_tables(config, f"select {COLUMNS} from groups order by day, country", 100)[1] == expected
    frame = sessionlake.read(spark, config).selectExpr(*COLUMNS.split(", ")).orderBy("day", "country")
    assert [tuple(row) for row in frame.collect()] == live(config) == expected
    create_schemas(spark, [config])
    for name in ("groups_live", "groups"):
        assert spark.sql(f"select count(*) from test.{name}").collect()[0][0] == len(expected), "it needs no quotes"


@pytest.mark.slow
def test_an_added_aggregate_is_null_in_groups_of_before_and_exact_in_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    before, after = group_config(tmp_path), group_config(tmp_path, aggregates={**AGGREGATES, "most": "max(v)"})
    write_rows(tmp_path, "0.json", [{**ROWS[0], "v": 3}])
    run(spark, before, once=True)
    write_rows(tmp_path, "1.json", [{**ROWS[0], "v": 5}, {**ROWS[1], "v": 7}])
    run(spark, after, once=True)
    shutil.rmtree(after.driver_store_dir)
    write_rows(tmp_path, "2.json", [{**row, "v": 1} for row in ROWS[:2]])
    run(spark, after, once=True)
    rows = query_tables(after, "select event_count, total, most from groups_live order by day", 9)[1]
    assert rows == [(3, 9, None), (2, 8, 7)]


def test_identities_are_needed_as_long_as_events_are_compared(tmp_path: Path) -> None:
    for unique_for, expired_us in (("1 minute", 40_000_000), (None, NO_WATERMARK)):
        sections = group_sections()
        sections["event"] |= {"id": "id", "unique_for": unique_for} if unique_for else {}
        assert (
            described_kind(Groups).expired_us(parse_config(sections, tmp_path), {"watermark_us": 100_000_000})
            == expired_us
        )
    assert described_kind(Groups).expired_us(parse_config(sections, tmp_path), {}) == NO_WATERMARK
