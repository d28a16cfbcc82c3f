"""Joins through Spark and Delta: two sources in one query, what their tables hold, and how their state comes back."""

import shutil
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.errors import SourceError
from sessionlake.jobs.compact.job import compact
from sessionlake.operators.views import read_live
from sessionlake.serve.queries import find_rows, query_tables
from sessionlake.sources.decoding.files import GONE
from sessionlake.stream.run import run
from sessionlake.warehouse.tables import Tables
from tests.operators.joins.join_support import accepted, join_config, joined, messages, pairs_of, read, write
from tests.oracle.joins import Given, JoinModel, Reach
from tests.oracle.joins import joined as joined_by


def check_all(config: Config, count: int) -> None:
    """Hold the tables against what plain Python and DuckDB make of the files."""
    found = accepted([messages(number) for number in range(count)])
    stored = read(config, "join_messages")
    for side, column in (("left", "orders_v"), ("right", "shipments_w")):
        rows = stored.filter(pc.equal(stored["side"], side))
        assert sorted(rows[column].to_pylist()) == sorted(m[2] for m in found[side])
    assert pairs_of(config) == joined(found)
    assert len(found["late"]) == read(config, "late_events").num_rows
    assert Counter(read(config, "dead_letters")["side"].to_pylist()) == Counter(d[0] for d in found["dead"])
    assert {"left", "right"} == set(read(config, "late_events")["side"].to_pylist())


@pytest.mark.slow
def test_files_beside_files_with_a_restart_a_lost_store_and_other_shards(spark: SparkSession, tmp_path: Path) -> None:
    sums: Counter[str] = Counter()
    for number in range(5):
        config = join_config(tmp_path, pipeline={"shards": 3 if number == 4 else 2})
        for side, rows in messages(number).items():
            write(tmp_path, side, number, rows)
        if number == 3:
            shutil.rmtree(config.driver_store_dir)
        sums.update(run(spark, config, once=True).counts)
    check_all(config, 5)
    assert sums["input"] == sums["accepted"] + sums["late"] + sums["dead"] == 5 * 62
    ids = (
        Tables.of(spark, config)["join_changelog"]
        .read()
        .where(
            "join_id = xxhash64(join_key, left_position, right_position) and join_time = greatest(left_time, right_time)"
        )
    )
    assert ids.count() == len(pairs_of(config)) > 0
    assert read_live(spark, config).count() == len(pairs_of(config))
    columns, ((pairs, stored),) = query_tables(
        config, "select (select count(*) from joins_live) p, (select count(*) from join_messages) m", 1
    )
    assert (columns, pairs, stored) == (["p", "m"], len(pairs_of(config)), read(config, "join_messages").num_rows)
    assert {row[0] for row in find_rows(config, "a", None, None, 1000)[1]} == {"a"}


@pytest.mark.slow
def test_pairs_of_full_windows_with_lost_stores_other_shards_and_the_end_of_a_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    windows = {"kind": "tumbling", "size": "10 us", "left": {"size": None}, "right": {"size": None}}
    reach = Reach("tumbling", size=10, advance=10)
    model, waiting = JoinModel(reach, grace=5, retention=40, early="off", full="end"), 0

    def sent() -> list[tuple[str, int, int]]:
        rows = read(config, "join_changelog").to_pylist()
        return sorted((row["join_key"], row["left_position"], row["right_position"]) for row in rows)

    for number in range(6):
        full = "close" if number == 5 else "end"
        shards = 3 if number >= 4 else 2
        config = join_config(
            tmp_path, **windows, emit={"early": "off", "full": full, "late": "batch"}, pipeline={"shards": shards}
        )
        for side, rows in messages(number).items():
            write(tmp_path, side, number, rows)
        if number in (2, 5):
            compact(spark, config)
            shutil.rmtree(config.driver_store_dir)
        run(spark, config, once=True)
        if full != model.full:
            model.go_on("off", "batch", full)
        given = ((side, row) for side, rows in messages(number).items() for row in rows if "line" not in row)
        model.batch([Given(side, row["id"], row["time_us"]) for side, row in given], 0)
        waiting += len(model.waiting)
        assert sent() == sorted(model.sent)
    assert waiting
    run(spark, config, once=True, drain=True)
    everything = sorted(joined_by(reach, model.due + list(model.waiting)))
    assert sent() == everything != sorted(model.sent)


@pytest.mark.slow
def test_files_beside_a_delta_table_whose_columns_are_called_the_same(spark: SparkSession, tmp_path: Path) -> None:
    delta = {"kind": "delta", "path": "shipments"}
    right = {"source": delta, "columns": ["path"], "event": {"time": "at"}}
    schema = "id string, at timestamp, path string, w bigint"
    spark.createDataFrame([], schema).write.format("delta").save(str(tmp_path / "shipments"))
    config = join_config(tmp_path, right=right, pipeline={"archive": True})
    for number in range(3):
        batch = messages(number)
        write(tmp_path, "left", number, batch["left"])
        rows = [(r["id"], r["time_us"], r["w"]) for r in batch["right"] if "line" not in r]
        made = spark.createDataFrame(rows, "id string, t bigint, w bigint").coalesce(1)
        made = made.select("id", F.timestamp_micros("t").alias("at"), F.col("w").cast("string").alias("path"), "w")
        made.write.format("delta").mode("append").save(str(tmp_path / "shipments"))
        run(spark, config, once=True)
    batches = [messages(number) for number in range(3)]
    found = accepted([{**batch, "right": [r for r in batch["right"] if "line" not in r]} for batch in batches])
    rows = read(config, "join_changelog")
    texts = zip(rows["orders_v"].to_pylist(), map(int, rows["shipments_path"].to_pylist()), strict=True)
    assert sorted(texts) == joined(found)
    assert Counter(read(config, "dead_letters")["side"].to_pylist()) == Counter(d[0] for d in found["dead"])
    archived = [(row["side"], row["event"]) for row in read(config, "events").to_pylist()]
    assert len(archived) == len(found["left"]) + len(found["right"]) + len(found["late"])
    assert all((event["orders_v"] is None) == (side == "right") for side, event in archived)


def staged(spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Commit batch 0, and plan batch 1 of a file on each side, which fails before it commits anything."""

    def hit(name: str) -> None:
        if name == "computed":
            raise SourceError("staged")

    config = join_config(root)
    for number in range(2):
        for side, rows in messages(number).items():
            write(root, side, number, rows)
        with monkeypatch.context() as patched:
            if number:
                patched.setattr(failpoints, "hit", hit)
                with pytest.raises(SourceError, match="staged"):
                    run(spark, config, once=True)
            else:
                run(spark, config, once=True)
    return config


@pytest.mark.slow
def test_a_planned_file_of_one_side_that_is_gone_is_its_dead_letter(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = staged(spark, tmp_path, monkeypatch)
    (tmp_path / "right" / "1.json").unlink()
    run(spark, config, once=True)
    letters = [row for row in read(config, "dead_letters").to_pylist() if row["reason"] == GONE]
    assert [(row["side"], row["source"]) for row in letters] == [("right", str(tmp_path / "right" / "1.json"))]
    assert pairs_of(config) == joined(accepted([messages(0), {"left": messages(1)["left"], "right": []}]))


@pytest.mark.slow
def test_a_plan_that_is_given_up_is_made_anew_of_both_sides(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = staged(spark, tmp_path, monkeypatch)
    (tmp_path / "left" / "1.json").unlink()
    run(spark, config, once=True, give_up_plan=True)
    assert f"replan: planned file '{tmp_path}/left/1.json' is gone" in caplog.text
    assert [row for row in read(config, "dead_letters").to_pylist() if row["reason"] == GONE] == []
    assert pairs_of(config) == joined(accepted([messages(0), {"left": [], "right": messages(1)["right"]}]))
