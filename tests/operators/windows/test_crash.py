"""A pipeline of windows that dies at any point loses nothing and sends nothing twice, though changes wait to be sent."""

from pathlib import Path
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession

from sessionlake.operators.windows.shard import STATE
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
size = "20 minutes"
advance = "10 minutes"
grace = "15 minutes"
retention_time = "40 minutes"

[emit]
early = "off"
late = "close"
"""


class WindowLake(Lake):
    """Hopping windows: what is not full waits, and so does what changes later, until it closes."""

    template: ClassVar[str] = config_of(WINDOW)
    changelog: ClassVar[str] = "window_changelog"
    tables: ClassVar[tuple[str, ...]] = (
        "window_changelog",
        "slice_changelog",
        schemas.LATE_EVENTS,
        schemas.DEAD_LETTERS,
        schemas.CORRECTION_OUTCOMES,
    )


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> WindowLake:
    lake = undisturbed(spark, WindowLake, tmp_path_factory.mktemp("windows"))
    triggers = {row["trigger"] for row in lake.rows("window_changelog")}
    assert triggers == {"full", "late"}
    totals = [
        sum(commit["counts"].get(name, 0) for commit in lake.commits()) for name in ("late", "partly_late", "dead")
    ]
    assert min(totals) > 0
    return lake


def test_crashes_in_every_batch_with_stores_lost_and_shards_cut_anew(
    spark: SparkSession, expected: WindowLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = WindowLake(tmp_path / "lake", expected.events)
    assert_stands_crashes(spark, lake, expected, monkeypatch, STATE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        f"before_{STATE}",
        f"after_{STATE}",
        "before_late",
        "after_dead",
        "before_changelog",
        "after_changelog:3",
        "computed",
    ],
)
def test_sigkill_of_the_driver(spark: SparkSession, expected: WindowLake, tmp_path: Path, point: str) -> None:
    lake = WindowLake(tmp_path / "lake", expected.events)
    assert_stands_sigkill(spark, lake, expected, point)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["worker_computed:2", "worker_applied"])
def test_sigkill_of_a_worker(expected: WindowLake, tmp_path: Path, point: str) -> None:
    lake = WindowLake(tmp_path / "lake", expected.events)
    assert_stands_sigkill_of_a_worker(lake, expected, point)
