"""Computed columns that change between batches, on real Spark and real Delta (rule 217); the first batch of the change is interrupted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.jobs.backfill import backfill
from sessionlake.preflight.plan import read_plan
from sessionlake.quality.run import run_quality
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import crash_at
from tests.stream.growing import EVER, config_of, events, files, shown
from tests.support import write_rows

Row = dict[str, Any]
FIRST = {"n": "count()", "total": "sum(v)"}
MOST = {"most": "max(price)"}


def shaped(root: Path, text: str, aggregates: dict[str, str] = FIRST, **more: Any) -> Config:
    """Return a config whose `where` asks a column of this text, through another one."""
    columns = {"part": text, "wanted": "part > 3", **more.pop("columns", {})}
    return config_of(root, "session", aggregates, event={"where": "wanted", "columns": columns}, **more)


def expected(
    spark: SparkSession, root: Path, kept: dict[int, Callable[[Row], bool]], *names: str
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the rows of a pipeline whose files have the events that their batches should take, and no others."""
    config = config_of(root, "session", {**FIRST, **MOST})
    for number, takes in kept.items():
        write_rows(root, f"{number}.json", [row for row in events(number) if takes(row)])
        run(spark, config, once=True)
    return shown(spark, config, *names)


def of_v(row: Row) -> bool:
    return bool(row["v"] > 3)


def of_price(row: Row) -> bool:
    return bool(row["price"] % 10 > 3)


@pytest.mark.slow
def test_each_batch_asks_the_columns_that_it_was_begun_with(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "changing"
    before = shaped(root, "v", archive="all")
    files(root, 0)
    run(spark, before, once=True)
    # Side tables have what the texts of before let in.
    files(root, 1)
    with crash_at(monkeypatch, "before_changelog"), pytest.raises(Exception, match="CrashError"):
        run(spark, before, once=True)
    # It reads a column that no batch has read.
    after = shaped(root, "price % 10 + v - v", archive="all")
    told = [change.fields() for change in read_plan(after).changes]
    assert [(change["change"], change["setting"]) for change in told] == [("live", "event.columns.part")]
    files(root, 2)
    # Killed again, in the batch that was interrupted and in the first one of the new text.
    for nth in (1, 2):
        with crash_at(monkeypatch, "before_changelog", nth), pytest.raises(Exception, match="CrashError"):
            run(spark, after, once=True)
    run(spark, after, once=True)
    kept = {0: of_v, 1: of_v, 2: of_price}
    assert shown(spark, after, *FIRST) == expected(spark, tmp_path / "whole", kept, *FIRST)
    shapes = last_batch(Tables.of(spark, after)).settings.shapes
    assert [(shape["since"], shape["columns"]["event.columns"]["part"]) for shape in shapes] == [
        (0, "v"),
        (2, "price % 10 + v - v"),
    ]

    # Rows of before are judged by the text of their batch: of the source, and whole ones of the archive.
    assert backfill(spark, after, **EVER, dry_run=True).counts["corrections"] == 0
    more = shaped(root, "price % 10 + v - v", {**FIRST, **MOST}, archive="all")
    run(spark, more, once=True)
    for file in (root / "events").iterdir():
        file.unlink()
    backfill(spark, more, **EVER)
    run(spark, more, once=True)
    wanted = expected(spark, tmp_path / "more", kept, *FIRST, *MOST)
    assert shown(spark, more, *FIRST, *MOST) == wanted
    checked = run_quality(spark, more)
    assert not checked.failed, checked.notes


@pytest.mark.slow
def test_an_aggregate_is_dropped_with_its_column_in_an_interrupted_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "shrinking"
    cost = {"cost": "price * v"}
    before = shaped(root, "v", {**FIRST, "paid": "sum(cost)"}, columns=cost, archive=True)
    files(root, 0)
    run(spark, before, once=True)
    files(root, 1)
    with crash_at(monkeypatch, "before_changelog"), pytest.raises(Exception, match="CrashError"):
        run(spark, before, once=True)
    after = config_of(root, "session", FIRST, event={"where": "fresh", "columns": {"fresh": "price % 10 > 3"}})
    with pytest.raises(PipelineStateError, match="--drop-aggregates"):
        run(spark, after, once=True)
    files(root, 2)
    run(spark, after, once=True, drop_aggregates=True)
    kept = {0: of_v, 1: of_v, 2: of_price}
    assert shown(spark, after, *FIRST) == expected(spark, tmp_path / "whole", kept, *FIRST)
    # Its name is taken by values of the column that it read.
    other = {"fresh": "price % 10 > 3", "cost": "price + v"}
    again = config_of(root, "session", {**FIRST, "paid": "sum(cost)"}, event={"where": "fresh", "columns": other})
    with pytest.raises(PipelineStateError, match=r"aggregates\.paid: was dropped, and event\.columns\.cost meant"):
        run(spark, again, once=True)
    named = config_of(root, "session", {**FIRST, "paid_2": "sum(cost)"}, event={"where": "fresh", "columns": other})
    run(spark, named, once=True)
    backfill(spark, named, **EVER)
    run(spark, named, once=True)
    # It is computed of the events that each batch has let in.
    sums: dict[str, int] = {}
    for number, takes in kept.items():
        for row in filter(takes, events(number)):
            sums[row["key"]] = sums.get(row["key"], 0) + row["price"] + row["v"]
    found = shown(spark, named, "paid_2")
    assert {key: sum(value[0] for at, value in found.items() if at[0] == key) for key in sums} == sums
