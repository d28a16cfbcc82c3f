"""A pipeline of windows by count that dies at any point numbers no message twice, loses none, and sends nothing twice."""

from pathlib import Path
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession

from sessionlake.operators.counts.shard import STATE
from sessionlake.warehouse import schemas
from tests.engine.crash_support import (
    Lake,
    assert_stands_crashes,
    assert_stands_sigkill,
    assert_stands_sigkill_of_a_worker,
    config_of,
    undisturbed,
)

WINDOW = """\
[window]
kind = "hopping"
by = "count"
per = "partition"
size = 30
advance = 10
retention_time = "40 minutes"
retention_count = 90

[emit]
early = "off"
"""


class CountLake(Lake):
    """Hopping windows over the messages of the files: those of a key get full by messages of others."""

    template: ClassVar[str] = config_of(WINDOW)
    changelog: ClassVar[str] = "window_changelog"
    tables: ClassVar[tuple[str, ...]] = (
        "window_changelog",
        "slice_changelog",
        schemas.DEAD_LETTERS,
        schemas.CORRECTION_OUTCOMES,
    )


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CountLake:
    lake = undisturbed(spark, CountLake, tmp_path_factory.mktemp("counts"))
    rows = lake.rows("window_changelog")
    assert {row["trigger"] for row in rows} == {"full"}
    assert len({row["batch_id"] for row in rows}) > 2
    commits = lake.commits()
    accepted = sum(commit["counts"].get("accepted", 0) for commit in commits)
    assert commits[-1]["state"]["positions"] == {"events": {"0": accepted}}
    return lake


@pytest.mark.slow
def test_crashes_in_every_batch_with_stores_lost_and_shards_cut_anew(
    spark: SparkSession, expected: CountLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = CountLake(tmp_path / "lake", expected.events)
    assert_stands_crashes(spark, lake, expected, monkeypatch, STATE)


@pytest.mark.slow
@pytest.mark.parametrize("point", [f"after_{STATE}", "before_changelog", "after_changelog:3"])
def test_sigkill_of_the_driver(spark: SparkSession, expected: CountLake, tmp_path: Path, point: str) -> None:
    lake = CountLake(tmp_path / "lake", expected.events)
    assert_stands_sigkill(spark, lake, expected, point)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["worker_computed:2", "worker_applied"])
def test_sigkill_of_a_worker(expected: CountLake, tmp_path: Path, point: str) -> None:
    lake = CountLake(tmp_path / "lake", expected.events)
    assert_stands_sigkill_of_a_worker(lake, expected, point)
