"""A pipeline of windows that dies at any point loses nothing and sends nothing twice, though changes wait to be sent."""

import shutil
from pathlib import Path
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession

from sessionlake.operators.windows.shard import STATE
from sessionlake.warehouse import schemas
from tests.engine.crash_support import (
    CONFIG,
    FIRST,
    SECOND,
    Lake,
    assert_killed,
    assert_same,
    crashes,
    killed_run,
    run_once,
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
BATCHES = range(FIRST[0], SECOND[-1] + 1)


class WindowLake(Lake):
    """Hopping windows: what is not full waits, and so does what changes later, until it closes."""

    start, end = CONFIG.index("[session]"), CONFIG.index("[aggregates]")
    template: ClassVar[str] = CONFIG[:start] + WINDOW + CONFIG[end:]
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
    root = tmp_path_factory.mktemp("windows")
    lake = WindowLake(root / "lake", root / "events")
    lake.write_files(BATCHES)
    run_once(spark, lake)
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
    crashes(spark, lake, monkeypatch, f"before_{STATE}", nth=2)
    crashes(spark, lake, monkeypatch, f"after_{STATE}")
    shutil.rmtree(lake.stores)
    crashes(spark, lake, monkeypatch, "before_changelog", nth=2)
    lake.configure(shards=2)
    crashes(spark, lake, monkeypatch, "after_changelog")
    run_once(spark, lake)
    assert_same(lake, expected)


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
    assert_killed(killed_run(lake, point))
    run_once(spark, lake)
    assert_same(lake, expected)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["worker_computed:2", "worker_applied"])
def test_sigkill_of_a_worker(expected: WindowLake, tmp_path: Path, point: str) -> None:
    lake = WindowLake(tmp_path / "lake", expected.events)
    done = killed_run(lake, point, tmp_path / "once")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "once").exists(), "no worker was killed"
    assert_same(lake, expected)
