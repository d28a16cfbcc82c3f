"""Aggregates added to pipelines that have results: null in these until they are filled, exact from then on; real Spark, real Delta."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.config.times import parse_time
from sessionlake.errors import PipelineStateError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.compact import compact
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.preflight.plan import read_plan
from sessionlake.quality.run import run_quality
from sessionlake.reading import read
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import crash_at
from tests.stream.growing import ADDED, EVER, FIRST, FORMS, config_of, events, files, rows, shown
from tests.support import write_rows


def run_by_file(spark: SparkSession, root: Path, config: Config, *numbers: int) -> None:
    for number in numbers:
        files(root, number)
        run(spark, config, once=True)


def undisturbed(spark: SparkSession, root: Path, form: str, *numbers: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the rows of a pipeline that had all aggregates from the beginning."""
    config = config_of(root, form, {**FIRST, **ADDED})
    run_by_file(spark, root, config, *numbers)
    return shown(spark, config, *FIRST, *ADDED)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_an_added_aggregate_is_exact_or_null_until_it_is_filled(spark: SparkSession, tmp_path: Path, form: str) -> None:
    root = tmp_path / "growing"
    before = config_of(root, form, FIRST)
    run_by_file(spark, root, before, 0, 1)
    there = shown(spark, before, *FIRST)
    # The order in the config has no meaning.
    after = config_of(root, form, {**ADDED, **dict(reversed(FIRST.items()))})
    told = [change.fields() for change in read_plan(after).changes]
    assert [(change["change"], change["setting"]) for change in told] == [
        ("from here on", "aggregates.refunds"),
        ("from here on", "aggregates.most"),
    ]
    assert {"backfill" in change["told"] for change in told} == {form != "count"}
    if form != "count":
        with pytest.raises(PipelineStateError, match=r"aggregates\.refunds: is new"):
            backfill(spark, after, **EVER)
    run(spark, after, once=True)
    assert shown(spark, after, *FIRST, *ADDED) == {key: (*row, None, None) for key, row in there.items()}
    run_by_file(spark, root, after, 2)
    shutil.rmtree(root / "store")
    run_by_file(spark, root, after, 3)

    wanted = undisturbed(spark, tmp_path / "whole", form, 0, 1, 2, 3)
    found = shown(spark, after, *FIRST, *ADDED)
    assert {key: row[:2] for key, row in found.items()} == {key: row[:2] for key, row in wanted.items()}
    known = {key for key, row in found.items() if row == wanted[key]}
    unknown = {key for key, row in found.items() if row[2:] == (None, None)}
    assert known | unknown == found.keys()
    assert known
    assert unknown & there.keys()
    if form == "count":
        return
    if form in {"session", "tumbling"}:
        compact(spark, after)
    assert backfill(spark, after, **EVER).counts["corrections"] > 0
    run(spark, after, once=True)
    assert shown(spark, after, *FIRST, *ADDED) == wanted
    assert backfill(spark, after, **EVER).counts["corrections"] == 0
    checked = run_quality(spark, after)
    assert not checked.failed, checked.notes


@pytest.mark.slow
def test_sql_without_spark_reads_files_of_before_and_after(spark: SparkSession, tmp_path: Path) -> None:
    run_by_file(spark, tmp_path, config_of(tmp_path, "session", FIRST), 0)
    after = config_of(tmp_path, "session", {**FIRST, **ADDED})
    run_by_file(spark, tmp_path, after, 1)
    found = read(after).order("session_start, session_key").select("session_key, refunds, most").fetchall()
    expected = sorted(rows(spark, after).values(), key=lambda row: (row["session_start"], row["session_key"]))
    assert found == [(row["session_key"], row["refunds"], row["most"]) for row in expected]
    assert None in {row["most"] for row in expected} != {None}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["session", "tumbling"])
def test_the_archive_fills_what_it_has(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """The archive has `v` since the first batch, and `price` since the third: before it what reads it stays null."""
    root = tmp_path / "growing"
    run_by_file(spark, root, config_of(root, form, FIRST, archive=True), 0, 1)
    after = config_of(root, form, {**FIRST, **ADDED}, archive=True)
    run_by_file(spark, root, after, 2, 3)
    for file in (root / "events").iterdir():
        file.unlink()
    backfill(spark, after, **EVER)
    run(spark, after, once=True)
    wanted, found = undisturbed(spark, tmp_path / "whole", form, 0, 1, 2, 3), shown(spark, after, *FIRST, *ADDED)
    assert {key: (*row[:2], row[3]) for key, row in found.items()} == {
        key: (*row[:2], row[3]) for key, row in wanted.items()
    }
    assert {row[2] == wanted[key][2] for key, row in found.items()} == {True, False}
    assert {row[2] for key, row in found.items() if row[2] != wanted[key][2]} == {None}
    assert backfill(spark, after, **EVER).counts["corrections"] == 0


@pytest.mark.slow
def test_the_command_that_plan_tells_fills_what_the_archive_has(spark: SparkSession, tmp_path: Path) -> None:
    run_by_file(spark, tmp_path, config_of(tmp_path, "session", FIRST, archive=True), 0, 1)
    after = config_of(tmp_path, "session", {**FIRST, **ADDED}, archive=True)
    plan = read_plan(after)
    refunds, most = plan.changes
    assert most.facts["results"] >= len(rows(spark, after)) > 0
    assert (most.facts["columns"], most.facts["archived_since"]) == (["v"], 0)
    assert set(refunds.facts["columns"]) == {"price", "type"}
    assert (refunds.facts["archived_since"], refunds.facts["backfill"]) == (None, None)
    command = most.facts["backfill"].split()
    assert command[:4] == ["sessionlake", "backfill", "CONFIG", "--from"]
    state = sum(
        file.stat().st_size for file in Path(after.pipeline.warehouse, "session_changelog").glob("**/*.parquet")
    )
    assert plan.restored_bytes == state
    run(spark, after, once=True)
    for file in (tmp_path / "events").iterdir():
        file.unlink()
    backfill(spark, after, from_us=parse_time(command[4]), to_us=parse_time(command[6]))
    run(spark, after, once=True)
    found = shown(spark, after, "refunds", "most")
    assert {row[0] for row in found.values()} == {None}
    assert None not in {row[1] for row in found.values()}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["session", "tumbling"])
def test_whole_rows_fill_what_was_not_read(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """The archive has whole rows since the second batch, and `price` since the third: only what has events of the first stays null."""
    root = tmp_path / "growing"
    run_by_file(spark, root, config_of(root, form, FIRST, archive=True), 0)
    run_by_file(spark, root, config_of(root, form, FIRST, archive="all"), 1)
    after = config_of(root, form, {**FIRST, **ADDED}, archive=True)
    run_by_file(spark, root, after, 2)
    for file in (root / "events").iterdir():
        file.unlink()
    backfill(spark, after, **EVER)
    run(spark, after, once=True)
    wanted, found = undisturbed(spark, tmp_path / "whole", form, 0, 1, 2), shown(spark, after, *FIRST, *ADDED)
    assert {key: (*row[:2], row[3]) for key, row in found.items()} == {
        key: (*row[:2], row[3]) for key, row in wanted.items()
    }
    first = {row["time_us"] for row in events(0)}
    unknown = {key for key, row in found.items() if row[2] != wanted[key][2]}
    assert {found[key][2] for key in unknown} == {None}
    assert all(any(time.microsecond <= last for last in first) for *_, time in unknown), unknown
    exact = {key for key, row in found.items() if row[2] == wanted[key][2] is not None}
    assert any(max(first) < time.microsecond < 80 for *_, time in exact), "of the second batch alone"
    assert backfill(spark, after, **EVER).counts["corrections"] == 0


@pytest.mark.slow
def test_late_events_of_before_are_restated_as_unknown(spark: SparkSession, tmp_path: Path) -> None:
    short = {"session": {"gap": "10 us", "grace": "20 us", "retention": "5000 us"}}
    before = config_of(tmp_path, "session", FIRST, **short)
    late = {"key": "z", "time_us": 3, "id": "late-1", "v": 5, "price": 40, "type": "refund"}
    write_rows(tmp_path, "0.json", [{**late, "key": "y", "time_us": 900, "id": "y"}])
    run(spark, before, once=True)
    write_rows(tmp_path, "1.json", [late])
    run(spark, before, once=True)
    after = config_of(tmp_path, "session", {**FIRST, **ADDED}, **short)
    write_rows(tmp_path, "2.json", [{**late, "time_us": 100, "id": "late-2"}])
    run(spark, after, once=True)
    assert reprocess_late(spark, after).counts["restated"] == 2
    run(spark, after, once=True)
    found = {row["session_start"].microsecond: row for row in rows(spark, after).values()}
    # `v` was read then, and `price` was not.
    assert [(found[at]["total"], found[at]["refunds"], found[at]["most"]) for at in (3, 100)] == [
        (5, None, 5),
        (5, 40, 5),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["session", "policy", "hopping"])
def test_an_interrupted_batch_ends_as_it_was_begun(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Its side tables are committed with the aggregates of before; the next batch is the first with the new ones."""
    root = tmp_path / "growing"
    before = config_of(root, form, FIRST, archive=True)
    run_by_file(spark, root, before, 0)
    interrupted = last_batch(Tables.of(spark, before)).batch_id + 1
    files(root, 1)
    with crash_at(monkeypatch, "before_changelog"), pytest.raises(Exception, match="CrashError"):
        run(spark, before, once=True)
    after = config_of(root, form, {**FIRST, **ADDED}, archive=True)
    files(root, 2)
    # Killed again, in the batch that was interrupted and in the first one of the new layout.
    for nth in (1, 2):
        with crash_at(monkeypatch, "before_changelog", nth), pytest.raises(Exception, match="CrashError"):
            run(spark, after, once=True)
    refused = config_of(root, form, FIRST, archive=True)
    with pytest.raises(PipelineStateError, match="is gone"):
        run(spark, refused, once=True)
    run(spark, after, once=True)
    wanted, found = undisturbed(spark, tmp_path / "whole", form, 0, 1, 2), shown(spark, after, *FIRST, *ADDED)
    assert {key: row[:2] for key, row in found.items()} == {key: row[:2] for key, row in wanted.items()}
    assert {row[2:] in {(None, None), wanted[key][2:]} for key, row in found.items()} == {True}
    last = Tables.of(spark, after)[Tables.of(spark, after).changelog.changes].last_commit()
    assert last is not None
    assert [layout["since"] for layout in last.metadata["settings"]["layouts"]] == [0, interrupted + 1]


@pytest.mark.slow
def test_three_layouts_a_computed_column_and_corrections_that_wait(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "growing"
    run_by_file(spark, root, config_of(root, "session", FIRST, archive=True), 0)
    second = config_of(root, "session", {**FIRST, "most": "max(v)"}, archive=True)
    run_by_file(spark, root, second, 1)
    assert backfill(spark, second, **EVER).counts["corrections"] > 0
    # The corrections are of the second layout, and taken by the first batch of the third.
    more = {"event": {"columns": {"cost": "price * v"}}}
    third = config_of(root, "session", {"cost": "sum(cost)", **FIRST, "most": "max(v)"}, archive=True, **more)
    run_by_file(spark, root, third, 2)
    found = rows(spark, third)
    whole = tmp_path / "whole"
    config = config_of(whole, "session", {**FIRST, "most": "max(v)", "cost": "sum(cost)"}, **more)
    run_by_file(spark, whole, config, 0, 1, 2)
    wanted = rows(spark, config)
    names = ("n", "total", "most")
    assert {k: [row[n] for n in names] for k, row in found.items()} == {
        k: [row[n] for n in names] for k, row in wanted.items()
    }
    assert {row["cost"] in {None, wanted[k]["cost"]} for k, row in found.items()} == {True}
    assert {row["cost"] is None for row in found.values()} == {True, False}
    corrections = Tables.of(spark, third)[schemas.CORRECTIONS].read().where("kind = 'replace'")
    assert {row[0] for row in corrections.select(schemas.LAYOUT).collect()} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["session", "hopping"])
def test_a_dropped_aggregate_may_come_back(spark: SparkSession, tmp_path: Path, form: str) -> None:
    root = tmp_path / "shrinking"
    whole = config_of(root, form, {**FIRST, **ADDED})
    run_by_file(spark, root, whole, 0)
    there = shown(spark, whole, *FIRST, *ADDED)
    less = config_of(root, form, FIRST)
    assert [change.fields()["change"] for change in read_plan(less).changes] == ["dropped", "dropped"]
    with pytest.raises(PipelineStateError, match="start once with `sessionlake run CONFIG --drop-aggregates`"):
        run(spark, less, once=True)
    files(root, 1)
    run(spark, less, once=True, drop_aggregates=True)
    shutil.rmtree(root / "store")
    run_by_file(spark, root, less, 2)
    # The columns stay: what did not change has its values, all else has null.
    wanted, found = undisturbed(spark, tmp_path / "whole", form, 0, 1, 2), shown(spark, less, *FIRST, *ADDED)
    assert {key: row[:2] for key, row in found.items()} == {key: row[:2] for key, row in wanted.items()}
    assert {key: row for key, row in found.items() if row[2:] != (None, None)}.items() <= there.items()
    assert not run_quality(spark, less).failed
    run(spark, whole, once=True)
    assert {row[2:] in {(None, None), wanted[key][2:]} for key, row in shown(spark, whole, *FIRST, *ADDED).items()}
    backfill(spark, whole, **EVER)
    run(spark, whole, once=True)
    assert shown(spark, whole, *FIRST, *ADDED) == wanted
    assert not run_quality(spark, whole).failed
