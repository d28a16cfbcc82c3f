"""The table of [sink.delta] equals the live view as of a batch, whatever was killed, compacted, corrected or done by two at once."""

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.config.source import DeltaSink
from sessionlake.errors import ConfigError, JobError, PipelineStateError
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.publish import Step, publish, sinks_of
from sessionlake.jobs.publish import table as module
from sessionlake.jobs.publish.table import Difference, SinkTable, Way, way_of
from sessionlake.preflight.sinks import require_table
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.sink_position import newest_position, table_in
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import FIRST, SECOND, CrashError, crash_at, run_once
from tests.jobs.publish_support import (
    assert_in_delta,
    assert_publish_killed,
    position,
    publish_once,
    publish_until,
    trim,
    vacuum_changes,
    with_sink,
)
from tests.operator_forms import GrowingSessionLake
from tests.operator_lake import OperatorLake
from tests.operators_table import LAKES
from tests.support import make_config, write_rows


def sink_table(spark: SparkSession, config: Config) -> SinkTable:
    """Return the table of a pipeline's config."""
    return SinkTable(Tables.of(spark, config), config)


def in_table(lake: OperatorLake, emit: str) -> Config:
    """Return the config of a pipeline with a table beside its warehouse."""
    return with_sink(lake, f"[sink.delta]\npath = 'out-{emit}'\nemit = '{emit}'", emit)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAKES)
def test_the_tables_are_the_live_view(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lake = LAKES[name](tmp_path / "lake", tmp_path / "events")
    kinds = ["changes", "final"] if lake.config.section.facts.closes else ["changes"]
    merged = with_sink(lake, "[sink.delta]\npath = 'out-merged'\nemit = 'changes'\nchange_feed = true", "merged")
    configs = [*(in_table(lake, emit) for emit in kinds), merged]
    changed = 0
    for number, files in enumerate((FIRST, SECOND)):
        lake.write_files(files)
        run_once(spark, lake)
        for config in configs:
            for point, made in (("sink_read", number), ("sunk", number + 1)):
                with crash_at(monkeypatch, point), pytest.raises(CrashError):
                    sink_table(spark, config).step()
                found = newest_position(table_in(config, Lake))
                assert made == (0 if found is None else found.step)
            # The step was made, though the process that made it did not live to know.
            assert sink_table(spark, config).step() is None
            changed += len(assert_in_delta(config))
        if number == 0:
            compact(spark, lake.config)
            lake.correct(spark)
    assert changed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sigkill_at_each_point_and_in_the_middle_of_a_write(spark: SparkSession, tmp_path: Path) -> None:
    lake = GrowingSessionLake(tmp_path / "lake", tmp_path / "events")
    config = in_table(lake, "changes")
    path, out = lake.root / "changes.toml", lake.root / "out-changes"
    lake.write_files(FIRST)
    run_once(spark, lake)
    assert_publish_killed(path, "sink_read")
    assert newest_position(table_in(config, Lake)) is None
    assert_publish_killed(path, "sunk")
    assert "0 steps" in publish_once(path).stdout
    assert_in_delta(config)
    lake.correct(spark)
    lake.write_files(SECOND)
    run_once(spark, lake)
    assert_publish_killed(path, "sink_written")
    assert position(config).step == 1
    there = {str(file) for file in out.glob("*.parquet")}

    def is_writing() -> bool:
        return any(str(file) not in there for file in out.glob("*.parquet"))

    before = position(config).step
    # Files lie there, and the transaction that names them may not.
    assert publish_until(path, is_writing)
    assert position(config).step in (before, before + 1)
    left = position(config).step == before
    done = publish_once(path)
    assert f"{int(left)} steps" in done.stdout, done.stderr
    assert_in_delta(config)


def small(root: Path, **sections: Any) -> Config:
    session = {"gap": "10 seconds", "grace": "1 minute", "retention": "1 hour"}
    return make_config(root, **{"session": session, "sink": {"delta": {"path": "out"}}, **sections})


def events(root: Path, name: str, *rows: tuple[str, int]) -> None:
    write_rows(root, name, [{"key": key, "time_us": second * 1_000_000, "v": 1} for key, second in rows])


def ran(spark: SparkSession, config: Config, name: str, *rows: tuple[str, int]) -> None:
    """Run a batch of events."""
    events(Path(config.directory), name, *rows)
    run(spark, config, once=True)


def log_of(config: Config) -> list[dict[str, Any]]:
    """Return of each commit of the table its commitInfo."""
    assert config.sink.delta is not None
    files = sorted(Path(config.sink.delta.path, "_delta_log").glob("*.json"))
    lines = (json.loads(line) for file in files for line in file.read_text().splitlines())
    return [action["commitInfo"] for action in lines if "commitInfo" in action]


@pytest.mark.slow
def test_two_followers_make_each_step_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path)
    ran(spark, config, "0.json", ("a", 0), ("b", 0))
    one, other = sink_table(spark, config), sink_table(spark, config)
    # Both load the table: that of the other one comes first.
    with crash_at(monkeypatch, "sink_read", action=lambda: other.step() and None):
        assert one.step() is None
    assert_in_delta(config)

    ran(spark, config, "1.json", ("a", 5), ("c", 0))
    former = last_batch(one.tables)
    ran(spark, config, "2.json", ("a", 12), ("d", 0))
    expire(spark, config, where="session_key = 'c'")
    run(spark, config, once=True)

    def to_the_former_batch() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(module, "last_batch", lambda _: former)
            other.step()
        assert position(config).seen.batch_id == former.batch_id

    # The other one gets to a batch between: c is there, which the difference that was read before has not.
    with crash_at(monkeypatch, "sink_read", action=to_the_former_batch) as seen:
        assert one.step() is not None
    assert seen.count("sunk") == 3, "the step was not read again"
    assert {row[0] for row in assert_in_delta(config)} == {"a", "b", "d"}
    numbers = [json.loads(info["userMetadata"])["sessionlake"]["sink"]["step"] for info in log_of(config)]
    assert numbers == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("feed", [False, True])
def test_a_step_writes_files_again_but_for_those_who_read_the_change_feed(
    spark: SparkSession, tmp_path: Path, *, feed: bool
) -> None:
    config = small(tmp_path, sink={"delta": {"path": "out", "change_feed": feed}})
    ran(spark, config, "0.json", ("a", 0), ("b", 1))
    publish(spark, config, once=True)
    ran(spark, config, "1.json", ("a", 5), ("c", 7))
    expire(spark, config, where="session_key = 'b'")
    run(spark, config, once=True)
    steps: list[Step] = []
    publish(spark, config, once=True, on_step=lambda _, step: steps.append(step))
    assert steps == [Step(2, rows=2, deleted=1)]
    assert {row[0] for row in assert_in_delta(config)} == {"a", "c"}
    assert log_of(config)[-1]["operation"] == ("MERGE" if feed else "WRITE")
    if feed:
        changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
        found = {(row.session_key, row._change_type) for row in changes.load(f"{tmp_path}/out").collect()}
        assert found == {("a", "update_preimage"), ("a", "update_postimage"), ("b", "delete"), ("c", "insert")}


@pytest.mark.slow
def test_files_that_cannot_have_a_changed_row_stay(spark: SparkSession, tmp_path: Path) -> None:
    config, out = small(tmp_path), f"{tmp_path}/out"
    # A start in the middle of a millisecond, which a file's statistics cut off.
    write_rows(tmp_path, "0.json", [{"key": key, "time_us": us, "v": 1} for key, us in (("a", 500), ("b", 1_000_000))])
    run(spark, config, once=True)
    publish(spark, config, once=True)
    first = {*deltalake.DeltaTable(out).file_uris()}
    assert len(first) == 2
    ran(spark, config, "1.json", ("c", 20), ("d", 21))
    publish(spark, config, once=True)
    assert first < {*deltalake.DeltaTable(out).file_uris()}
    ran(spark, config, "2.json", ("a", 5))
    publish(spark, config, once=True)
    assert len(first & {*deltalake.DeltaTable(out).file_uris()}) == 1
    assert {row[0] for row in assert_in_delta(config)} == {"a", "b", "c", "d"}


@pytest.mark.parametrize(
    ("changed", "gone", "stored", "exact", "options", "way"),
    [
        (50_000, 0, 1_000_000, False, {}, Way.REWRITE),
        (1, 0, 1_000_000, False, {"change_feed": True}, Way.MERGE),
        (1, 0, 1_000_000, False, {"deletion_vectors": True}, Way.MERGE),
        (1, 0, 1_000_001, False, {}, Way.COMPARE),
        (0, 1, 1_000_001, False, {}, Way.MERGE),
        (1, 0, 1_000_001, True, {}, Way.MERGE),
        (100_000, 0, 2_000_000, False, {}, Way.REWRITE),
        (99_999, 0, 2_000_000, False, {}, Way.COMPARE),
    ],
)
def test_the_way_depends_on_the_share_of_changed_rows(
    changed: int,
    gone: int,
    stored: int,
    exact: bool,  # noqa: FBT001
    options: dict[str, bool],
    way: Way,
) -> None:
    rows: Any = None
    sink = DeltaSink(path="out", **options)
    assert way_of(Difference(rows, changed, gone, exact, are_new=False, span=None), stored, sink) is way
    assert way_of(Difference(rows, changed, gone, exact, are_new=True, span=None), stored, sink) is Way.APPEND


@pytest.mark.slow
def test_few_changes_of_many_rows_are_merged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path)
    ran(spark, config, "0.json", *((f"user-{n}", n % 3) for n in range(50)))
    publish(spark, config, once=True)
    monkeypatch.setattr(module, "_FILE_ROWS", 49)
    for number, (changed, operation) in enumerate((((0, 2), "MERGE"), ((0, 1, 2), "WRITE"))):
        ran(spark, config, f"{number + 1}.json", *((f"user-{n}", 5 + number) for n in changed))
        publish(spark, config, once=True)
        assert log_of(config)[-1]["operation"] == operation
        assert len(assert_in_delta(config)) == 50


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "stay"), [(49, True), (1000, False)])
def test_new_rows_of_a_large_table_are_appended(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    stay: bool,  # noqa: FBT001
) -> None:
    config, out = small(tmp_path), f"{tmp_path}/out"
    ran(spark, config, "0.json", *((f"user-{n}", n % 3) for n in range(50)))
    publish(spark, config, once=True)
    first = {*deltalake.DeltaTable(out).file_uris()}
    monkeypatch.setattr(module, "_FILE_ROWS", rows)
    ran(spark, config, "1.json", ("new", 0), ("newer", 2))
    publish(spark, config, once=True)
    assert (first <= {*deltalake.DeltaTable(out).file_uris()}) == stay
    assert len(assert_in_delta(config)) == 52


@pytest.mark.slow
def test_rows_that_never_change_are_appended(spark: SparkSession, tmp_path: Path) -> None:
    lake = LAKES["process"](tmp_path / "lake", tmp_path / "events")
    config, files = in_table(lake, "changes"), list[set[str]]()
    for some in (FIRST, SECOND):
        lake.write_files(some)
        run_once(spark, lake)
        sink_table(spark, config).step()
        files.append({*deltalake.DeltaTable(table_in(config, Lake).uri).file_uris()})
    assert files[0] < files[1]
    assert assert_in_delta(config)


@pytest.mark.slow
def test_of_two_that_write_files_again_one_takes_effect(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path)
    ran(spark, config, "0.json", ("a", 0), ("b", 0))
    one, other = sink_table(spark, config), sink_table(spark, config)
    one.step()
    ran(spark, config, "1.json", ("a", 5))
    former = last_batch(one.tables)
    ran(spark, config, "2.json", ("b", 5), ("c", 0))

    def to_the_former_batch() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(module, "last_batch", lambda _: former)
            other.step()

    # Its files are written when the other one commits.
    with crash_at(monkeypatch, "sink_written", action=to_the_former_batch) as seen:
        assert one.step() is not None
    assert seen.count("sunk") == 2, "the step was not read again"
    assert len(assert_in_delta(config)) == 3
    ran(spark, config, "3.json", ("a", 9))
    with crash_at(monkeypatch, "sink_written", action=lambda: other.step() and None):
        assert one.step() is None
    assert len(assert_in_delta(config)) == 3
    numbers = [json.loads(info["userMetadata"])["sessionlake"]["sink"]["step"] for info in log_of(config)]
    assert numbers == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("point", ["sink_read", "sink_written"])
@pytest.mark.parametrize("change", ["append", "delete"])
def test_what_somebody_else_writes_meanwhile_is_not_overwritten(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, point: str
) -> None:
    config = small(tmp_path)
    ran(spark, config, "0.json", ("a", 0), ("b", 0))
    table, out = sink_table(spark, config), f"{tmp_path}/out"
    table.step()
    ran(spark, config, "1.json", ("a", 5))

    def by_somebody_else() -> None:
        if change == "append":
            write_deltalake(out, deltalake.DeltaTable(out).to_pyarrow_table(), mode="append")
        else:
            deltalake.DeltaTable(out).delete("session_key = 'b'")

    with (
        crash_at(monkeypatch, point, action=by_somebody_else),
        pytest.raises(PipelineStateError, match=r"^sink.delta: version 1 of '.*' is a (WRITE|DELETE) of somebody else"),
    ):
        table.step()
    assert [row.event_count for row in spark.read.format("delta").load(out).where("session_key = 'a'").collect()] == (
        [1, 1] if change == "append" else [1]
    )


@pytest.mark.slow
def test_rows_that_get_into_quarantine_leave_the_table(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path, quarantine={"max_events": 3})
    ran(spark, config, "0.json", ("a", 0), ("b", 0), ("b", 1))
    publish(spark, config, once=True)
    assert len(assert_in_delta(config)) == 2
    ran(spark, config, "1.json", ("b", 2), ("b", 3), ("c", 4))
    steps: list[Step] = []
    publish(spark, config, once=True, on_step=lambda _, step: steps.append(step))
    assert steps == [Step(1, rows=1, deleted=1)]
    assert {row[0] for row in assert_in_delta(config)} == {"a", "c"}
    ran(spark, config, "2.json", ("b", 5), ("c", 6))
    publish(spark, config, once=True)
    assert {row[0] for row in assert_in_delta(config)} == {"a", "c"}
    stricter = small(tmp_path, quarantine={"max_events": 1})
    with pytest.raises(
        PipelineStateError, match=r"^quarantine: has changed, and '.*' leaves out rows by the old .* --resync`$"
    ):
        publish(spark, stricter, once=True)
    publish(spark, stricter, once=True, resync=True)
    assert {row[0] for row in assert_in_delta(stricter)} == {"a"}


@pytest.mark.slow
def test_a_new_aggregate_is_a_new_column(spark: SparkSession, tmp_path: Path) -> None:
    lake = GrowingSessionLake(tmp_path / "lake", tmp_path / "events")
    lake.write_files(FIRST)
    run_once(spark, lake)
    publish(spark, in_table(lake, "changes"), once=True)
    lake.correct(spark)
    lake.write_files(SECOND)
    run_once(spark, lake)
    config = in_table(lake, "changes")
    publish(spark, config, once=True)
    assert_in_delta(config)
    table = deltalake.DeltaTable(config.sink.delta.path)  # type: ignore[union-attr]
    comments = {field.name: field.metadata.get("comment") for field in table.schema().fields}
    wanted = deltalake.DeltaTable(f"{config.pipeline.warehouse}/sessions").schema().fields
    assert comments == {field.name: field.metadata.get("comment") for field in wanted if field.name in comments}
    assert comments["most"]
    values = table.to_pyarrow_table()["most"]
    assert 0 < values.null_count < len(values)


@pytest.mark.slow
def test_a_pipeline_that_was_rebuilt_needs_another_load(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path)
    ran(spark, config, "0.json", ("a", 0))
    publish(spark, config, once=True)
    other = small(tmp_path, pipeline={"name": "test", "warehouse": "other"})
    ran(spark, other, "1.json", ("b", 0))
    rebuilt = r"^sink.delta: '.*' has the rows of another 'test', which was rebuilt .* since its batch 0; .*--resync`$"
    for check in (lambda: publish(spark, other, once=True), lambda: require_table(other)):
        with pytest.raises(PipelineStateError, match=rebuilt):
            check()
    require_table(other, resync=True)
    assert publish(spark, other, once=True, resync=True).steps == 1
    assert {row[0] for row in assert_in_delta(other)} == {"a", "b"}
    with pytest.raises(PipelineStateError, match=rebuilt.replace("0;", "1;")):
        publish(spark, config, once=True)

    # Rows that somebody else has changed.
    deltalake.DeltaTable(f"{tmp_path}/out").delete("session_key = 'a'")
    with pytest.raises(PipelineStateError, match=r"^sink.delta: version 2 of '.*' is a DELETE of somebody else"):
        require_table(other)
    publish(spark, other, once=True, resync=True)
    assert len(assert_in_delta(other)) == 2


@pytest.mark.slow
def test_changes_that_are_gone_do_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path, compact={"safety": "0 seconds"})
    ran(spark, config, "0.json", ("a", 0))
    publish(spark, config, once=True)
    ran(spark, config, "1.json", ("a", 5), ("b", 0))
    trim(spark, config)
    ran(spark, config, "2.json", ("c", 6))
    vacuum_changes(config)
    assert publish(spark, config, once=True).steps == 1
    assert len(assert_in_delta(config)) == 3
    assert [info["operation"] for info in log_of(config)] == ["WRITE", "WRITE"]


@pytest.mark.slow
def test_an_erased_key_leaves_the_table_and_its_files(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path, sink={"delta": {"path": "out", "change_feed": True, "deletion_vectors": True}})
    ran(spark, config, "0.json", ("ann", 0), ("bob", 0))
    publish(spark, config, once=True)
    ran(spark, config, "1.json", ("ann", 5), ("bob", 6))
    publish(spark, config, once=True)
    with pytest.raises(JobError, match=r"publish has not read the deletes yet; run `sessionlake publish --once`"):
        forget(spark, config, ["ann"])
    publish(spark, config, once=True)
    assert forget(spark, config, ["ann"]).counts["found"] == 0
    files = list(Path(tmp_path, "out").rglob("*.parquet"))
    keys = {key for file in files for key in pq.read_table(file)["session_key"].to_pylist()}
    assert keys == {"bob"}
    assert not any(b'"ann"' in file.read_bytes() for file in Path(tmp_path, "out", "_delta_log").glob("*.*"))
    # The next step goes on from what is left.
    ran(spark, config, "2.json", ("bob", 7))
    assert publish(spark, config, once=True).steps == 1
    assert log_of(config)[-1]["operation"] == "MERGE"
    found = spark.read.format("delta").load(f"{tmp_path}/out").collect()
    assert [(row.session_key, row.event_count) for row in found] == [("bob", 3)]


def test_no_step_into_a_table_of_others(tmp_path: Path) -> None:
    config = small(tmp_path)
    require_table(config)
    write_deltalake(f"{tmp_path}/out", pa.table({"a": [1]}))
    with pytest.raises(
        ConfigError, match=r"^sink.delta.path: '.*/out' is a table that publish has not made; move it, or"
    ):
        require_table(config)
    for path in ("warehouse", "warehouse/sessions", "."):
        with pytest.raises(
            ConfigError, match=r"^sink.delta.path: '.*' is a place of the pipeline's own tables, '.*'; write"
        ):
            make_config(tmp_path, sink={"delta": {"path": path}})
    with pytest.raises(
        ConfigError, match=r"^sink: is missing; add \[sink.kafka\] with .*, or \[sink.python\] with call$"
    ):
        sinks_of(make_config(tmp_path))
    with pytest.raises(ConfigError, match=r"^sink.kafka: is missing"):
        sinks_of(config, "kafka")
    with pytest.raises(ConfigError, match=r"^--resync: "):
        sinks_of(make_config(tmp_path, sink={"kafka": {"bootstrap_servers": "b:1", "topic": "t"}}), resync=True)
