"""The compaction of windows: equal to DuckDB's fold of the changelog, and so for each changelog that a pipeline has."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.jobs.compact import compact
from sessionlake.operators.windows.table import SLICES, WINDOWS
from sessionlake.stream.run import run
from sessionlake.warehouse.views import fold_point
from tests.jobs.backup.copies import copy_pipeline
from tests.jobs.window_support import (
    changes_of,
    folded,
    hopping_config,
    live,
    rows_of,
    run_files,
    slices_of_a_batch_to_come,
    tables_of,
    window_config,
)
from tests.support import write_rows


def impatient(root: Path) -> Config:
    return window_config(root, compact={"safety": "0 seconds", "vacuum": "0 hours"})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["merge", "rewrite"])
def test_windows_are_folded_and_trimmed_and_read_the_same(spark: SparkSession, tmp_path: Path, method: str) -> None:
    config = impatient(tmp_path)
    run_files(spark, tmp_path, config, range(3))
    expected, rows = folded(config), changes_of(config).num_rows
    report = compact(spark, config, method=method)
    tables = tables_of(spark, config)
    assert rows_of(tables["windows"].read()) == expected == live(tables)
    assert report.counts["rows_folded"] == rows
    assert report.counts["windows_upserted"] == len(expected)
    assert report.counts["windows_deleted"] == 0
    assert report.notes[0].startswith(f"folded up to batch 2 by {method}: ")
    assert fold_point(tables) == 2
    all_changes = changes_of(config)
    run_files(spark, tmp_path, config, range(3, 5))
    trimmed = compact(spark, config, method=method)
    assert trimmed.counts["rows_trimmed"] == rows
    assert set(changes_of(config)["batch_id"].to_pylist()) == {3, 4}
    assert rows_of(tables["windows"].read()) == live(tables)
    kept = [row for row in expected if row[:2] not in {row[:2] for row in folded(config)}]
    assert live(tables) == sorted(kept + folded(config))
    assert all_changes.num_rows == rows


@pytest.mark.slow
def test_a_dry_run_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    config = impatient(tmp_path)
    run_files(spark, tmp_path, config, range(1))
    report = compact(spark, config, dry_run=True)
    assert report.counts["windows_upserted"] == len(folded(config))
    assert "windows changed" in report.notes[0]
    assert tables_of(spark, config)["windows"].read().isEmpty()


@pytest.mark.slow
def test_slices_are_folded_up_to_the_last_committed_batch_and_stores_restored_from_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = hopping_config(tmp_path, compact={"safety": "0 seconds", "vacuum": "0 hours"})
    run_files(spark, tmp_path, config, range(3))
    tables = tables_of(spark, config)
    slices = tables.seen_by(SLICES)
    committed, sent = folded(config, SLICES), folded(config)
    report = compact(spark, config)
    assert rows_of(tables["slices"].read(), SLICES) == committed == live(slices)
    assert rows_of(tables["windows"].read()) == sent
    assert report.counts["slices_upserted"] == len(committed)
    compact(spark, config)
    assert changes_of(config, SLICES).num_rows == changes_of(config).num_rows == 0
    # The same file to a pipeline that has its stores, and to one that restores them from what was folded.
    copies = [copy_pipeline(tmp_path, tmp_path.parent / f"{tmp_path.name}-{n}", hopping_config) for n in range(2)]
    shutil.rmtree(copies[1].driver_store_dir)
    for copy in copies:
        run_files(spark, Path(copy.directory), copy, range(3, 4))
    assert folded(copies[0]) == folded(copies[1]) != []
    assert folded(copies[0], SLICES) == folded(copies[1], SLICES) != []
    slices_of_a_batch_to_come(tables)
    compact(spark, config)
    assert rows_of(tables["slices"].read(), SLICES) == committed
    assert fold_point(slices) == fold_point(tables)
    assert changes_of(config, SLICES).num_rows == 1


@pytest.mark.slow
def test_restored_stores_go_on_from_what_was_folded_and_trimmed(spark: SparkSession, tmp_path: Path) -> None:
    config = impatient(tmp_path)
    run_files(spark, tmp_path, config, range(2))
    for _ in range(2):
        compact(spark, config)
    assert changes_of(config, WINDOWS).num_rows == 0
    moved = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"store": str(tmp_path / "new")})})
    before: dict[Any, Any] = {row[:2]: row for row in live(tables_of(spark, config))}
    key, start, count, _ = max(before.values(), key=lambda row: row[1])
    write_rows(tmp_path, "more.json", [{"key": key, "time_us": start, "v": 1}])
    run(spark, moved, once=True)
    after = {row[:2]: row for row in live(tables_of(spark, config))}
    assert after == {**before, (key, start): (key, start, count + 1, 2)}
