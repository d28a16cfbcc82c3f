"""A join that dies at any point loses nothing and sends nothing twice, though messages wait for the end of a period."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession

from sessionlake.operators.joins.spec import MESSAGES
from sessionlake.warehouse import schemas
from tests.engine.crash_support import (
    CONFIG,
    Lake,
    assert_stands_crashes,
    assert_stands_sigkill,
    assert_stands_sigkill_of_a_worker,
    undisturbed,
)

JOIN = """\
[join]
on = ["key"]
grace = "15 minutes"
retention_time = "40 minutes"
idle = "1000 days"

[join.left]
name = "former"
size = "10 minutes"
columns = ["v"]
source = {{ kind = "files", path = "{events}", format = "json", max_files_per_batch = 1 }}
event = {{ time = "time", time_unit = "s" }}

[join.right]
name = "latter"
size = "5 minutes"
columns = ["tag"]
source = {{ kind = "files", path = "{events}", format = "json", max_files_per_batch = 1 }}
event = {{ time = "time", time_unit = "s" }}

[emit]
early = "1000 days"
late = "batch"
"""


class JoinLake(Lake):
    """A stream joined with itself: what is not older than the watermark waits for the end of the run."""

    template: ClassVar[str] = CONFIG[: CONFIG.index("[source]")] + JOIN
    changelog: ClassVar[str] = "join_changelog"
    tables: ClassVar[tuple[str, ...]] = (
        "join_changelog",
        schemas.JOIN_MESSAGES,
        schemas.LATE_EVENTS,
        schemas.DEAD_LETTERS,
        schemas.CORRECTION_OUTCOMES,
    )

    def content(self) -> dict[str, Any]:
        found = super().content()
        for _, _, state in found["counts"]:
            del state["seen_us"]
        return found


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> JoinLake:
    lake = undisturbed(spark, JoinLake, tmp_path_factory.mktemp("joins"))
    sent = [commit["counts"]["upserts"] for commit in lake.commits()]
    assert any(sent[:-1]), "nothing was sent before the end of the run: no message was older than the watermark"
    assert sent[-1] > max(sent[:-1]), "little waited for the end of the run"
    totals = [sum(commit["counts"].get(name, 0) for commit in lake.commits()) for name in ("late", "dead")]
    assert min(totals) > 0
    return lake


@pytest.mark.slow
def test_crashes_in_every_batch_with_stores_lost_and_shards_cut_anew(
    spark: SparkSession, expected: JoinLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = JoinLake(tmp_path / "lake", expected.events)
    assert_stands_crashes(spark, lake, expected, monkeypatch, MESSAGES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        f"before_{MESSAGES}",
        f"after_{MESSAGES}",
        "before_late",
        "after_dead",
        "before_changelog",
        "after_changelog:3",
        "computed",
    ],
)
def test_sigkill_of_the_driver(spark: SparkSession, expected: JoinLake, tmp_path: Path, point: str) -> None:
    lake = JoinLake(tmp_path / "lake", expected.events)
    assert_stands_sigkill(spark, lake, expected, point)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["worker_computed:2", "worker_applied"])
def test_sigkill_of_a_worker(expected: JoinLake, tmp_path: Path, point: str) -> None:
    lake = JoinLake(tmp_path / "lake", expected.events)
    assert_stands_sigkill_of_a_worker(lake, expected, point)
