"""The messages that a join's state is restored from are guarded as its changelog is: what others do to them is noticed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.jobs.compact.job import compact
from sessionlake.jobs.forget.job import forget
from sessionlake.observe.status import read_status
from sessionlake.operators.joins.table import JOINS
from sessionlake.stream.run import run
from sessionlake.warehouse.schemas import JOIN_MESSAGES
from sessionlake.warehouse.tables import Tables
from tests.jobs.backup.copies import copy_pipeline
from tests.operators.joins.join_support import join_config, read, write

DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def committed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A join after a batch of a file on each side, and with a left file more."""
    root = tmp_path_factory.mktemp("join")
    config = join_config(root)
    write(root, "left", 0, [{"id": "a", "time_us": 203, "v": 1}, {"id": "b", "time_us": 204, "v": 1}])
    write(root, "right", 0, [{"id": "a", "time_us": 205, "w": 1}])
    run(spark, config, once=True)
    write(root, "left", 1, [{"id": "a", "time_us": 206, "v": 2}])
    return root


@pytest.fixture
def config(committed: Path, tmp_path: Path) -> Config:
    """The same join, to be changed."""
    return copy_pipeline(committed, tmp_path, join_config)


def deleting(spark: SparkSession, config: Config) -> Callable[[], None]:
    name = Tables.of(spark, config)[JOIN_MESSAGES].sql_name()
    return lambda: spark.sql(f"delete from {name} where side = 'right'").collect() and None


def test_messages_that_others_delete_stop_the_stream(spark: SparkSession, config: Config) -> None:
    assert read_status(config).reconciles
    deleting(spark, config)()
    with pytest.raises(PipelineStateError, match=r"table 'join_messages': version \d+ is a DELETE"):
        run(spark, config, once=True)
    assert not read_status(config).reconciles


def test_a_running_stream_notices_before_its_next_commit(spark: SparkSession, config: Config) -> None:
    delete = deleting(spark, config)
    with pytest.raises(PipelineStateError, match="table 'join_messages'"):
        run(spark, config, once=True, gate=lambda _: delete())
    assert {row["revision"] for row in read(config, "join_changelog").to_pylist()} == {0}


def test_a_warehouse_without_the_messages_is_refused(spark: SparkSession, config: Config) -> None:
    shutil.rmtree(Tables.of(spark, config)[JOIN_MESSAGES].uri)
    with pytest.raises(PipelineStateError, match="table 'join_messages': is missing"):
        run(spark, config, once=True)


@pytest.mark.slow
def test_our_own_jobs_may_delete_messages(spark: SparkSession, config: Config, tmp_path: Path) -> None:
    later = [{"id": "c", "time_us": 3 * DAY_US, "v": 1}]
    write(tmp_path, "left", 2, later)
    write(tmp_path, "right", 2, [{"id": "c", "time_us": 3 * DAY_US, "w": 1}])
    run(spark, config, once=True)
    assert compact(spark, config).counts["messages_trimmed"] == 4
    tables = Tables.of(spark, config)
    trimmed = tables[JOIN_MESSAGES].latest_version()
    forget(spark, config, ["c"])
    assert tables[JOIN_MESSAGES].latest_version() > trimmed
    assert not read(config, JOIN_MESSAGES).num_rows
    for name in JOINS.changelog.guarded:
        assert tables[name].foreign_change(after=-1) is None
    write(tmp_path, "left", 3, later)
    assert run(spark, config, once=True).counts["accepted"] == 1
