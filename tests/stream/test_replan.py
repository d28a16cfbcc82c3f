"""A batch that was planned and not committed: its files that are gone, and another plan for it."""

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.errors import PipelineStateError, SourceError
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.sources.decoding.files import GONE
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.support import make_config, write_rows

COMPACT = "spark.sql.streaming.fileSource.log.compactInterval"


def fail_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def hit(name: str) -> None:
        if name == point:
            raise SourceError("staged")

    monkeypatch.setattr(failpoints, "hit", hit)


def staged(spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch, point: str, *more: str) -> Config:
    """Commit batch 0 of one file, and plan batch 1 of the next three of four, which fails at a point."""
    config = make_config(root, source={"max_files_per_batch": 3})
    write_rows(root, "f0.json", [{"key": "k0", "time_us": 1, "v": 1}])
    run(spark, config, once=True)
    for i in range(1, 5):
        write_rows(root, f"f {i}+%20.json", [{"key": f"k{i}", "time_us": 1, "v": 1}, *more])
    with monkeypatch.context() as patched:
        fail_at(patched, point)
        with pytest.raises(SourceError, match="staged"):
            run(spark, config, once=True)
    assert sorted(p.name for p in Path(config.checkpoint, "offsets").iterdir() if p.name.isdigit()) == ["0", "1"]
    return config


def keys_of(spark: SparkSession, config: Config) -> list[str]:
    rows = (
        merged_rows(Tables(spark, config.pipeline.warehouse, CHANGELOG)).select("session_key", "event_count").collect()
    )
    assert all(row.event_count == 1 for row in rows)
    return sorted(row.session_key for row in rows)


@pytest.mark.slow
def test_a_planned_file_that_is_gone_is_a_dead_letter(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = staged(spark, tmp_path, monkeypatch, "computed")
    gone = tmp_path / "events" / "f 2+%20.json"
    gone.unlink()
    counts = run(spark, config, once=True).counts
    assert (counts["input"], counts["accepted"], counts["dead"]) == (4, 3, 1)
    assert keys_of(spark, config) == ["k0", "k1", "k3", "k4"]
    (dead,) = Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.DEAD_LETTERS].read().collect()
    assert (dead.reason, dead.source, dead.raw, dead.batch_id) == (GONE, str(gone), None, 1)


@pytest.mark.slow
def test_another_plan_loses_and_doubles_nothing(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = spark.conf.get(COMPACT)
    spark.conf.set(COMPACT, "2")  # so that what is given up is a compacted entry, which holds the others too
    try:
        staged(spark, tmp_path, monkeypatch, "computed")
        gone = tmp_path / "events" / "f 2+%20.json"
        gone.unlink()
        config = make_config(tmp_path, source={"max_files_per_batch": 1})
        with caplog.at_level(logging.WARNING, "sessionlake"):
            summary = run(spark, config, once=True, give_up_plan=True)
            again = run(spark, config, once=True, give_up_plan=True)
    finally:
        spark.conf.set(COMPACT, before)
    assert [record.getMessage() for record in caplog.records if record.name == "sessionlake"] == [
        "sessionlake: replan: the plan of batch 1 is discarded, and planned again",
        f"sessionlake: replan: planned file {str(gone)!r} is gone, and so is not read",
        "sessionlake: replan: no batch was planned and not committed; there was nothing to give up",
    ]
    assert (summary.batches, summary.counts["input"], summary.counts["accepted"]) == (3, 3, 3)
    assert (again.batches, again.counts["input"]) == (0, 0)
    assert keys_of(spark, config) == ["k0", "k1", "k3", "k4"]


@pytest.mark.slow
def test_a_batch_whose_dead_letters_are_written_is_not_planned_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = staged(spark, tmp_path, monkeypatch, "before_changelog", "no json")
    with pytest.raises(PipelineStateError, match="batch 1 has written its rows of 'dead_letters' already"):
        run(spark, config, once=True, give_up_plan=True)
    counts = run(spark, config, once=True).counts
    assert (counts["input"], counts["dead"]) == (8, 4)
    assert Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.DEAD_LETTERS].read().count() == 4
    assert keys_of(spark, config) == [f"k{i}" for i in range(5)]


def test_bytes_bound_a_batch_of_files(spark: SparkSession, tmp_path: Path) -> None:
    config = make_config(tmp_path, source={"max_files_per_batch": None, "max_bytes_per_batch": 80})
    for i in range(5):
        write_rows(tmp_path, f"f{i}.json", [{"key": f"k{i}", "time_us": 1, "v": 1}] * (1 + 2 * (i == 4)))
    assert [run(spark, config, once=True).batches for _ in range(2)] == [3, 0]
