"""Two drivers, copies out of step, a checkpoint or changelog gone: one line, and nothing counted twice."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionlake.errors import ExitCode, FencedError, LockedError, PipelineStateError
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.lock import locked_store
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import Lake, Row, assert_same, crash_at, crashes, killed_run, run_once


def commit_by_hand(spark: SparkSession, lake: Lake, metadata: Row) -> None:
    """Commit the batch that comes next without a row, as another driver would."""
    table, last = Tables(spark, str(lake.warehouse), CHANGELOG)[schemas.CHANGELOG], lake.commits()[-1]
    batch_id = last["batch_id"] + 1
    table.commit_files([], last["checkpoint_id"], batch_id, metadata, after_version=table.latest_version())


def assert_one_line(done: subprocess.CompletedProcess[str], code: ExitCode, *words: str) -> None:
    assert done.returncode == code, done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert [word for word in words if word not in lines[0]] == []


@pytest.mark.slow
def test_batch_committed_by_another_is_noticed(spark: SparkSession, half: Lake, tmp_path: Path) -> None:
    lake = half.copy(tmp_path / "lake")
    commit_by_hand(spark, lake, {})
    before = lake.rows(schemas.CHANGELOG)
    assert_one_line(killed_run(lake), ExitCode.FENCED, "another driver committed batch 2", "keep only one running")
    assert lake.rows(schemas.CHANGELOG) == before


def test_other_driver_commits_between_our_work_and_our_commit(
    spark: SparkSession, half: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = half.copy(tmp_path / "lake")
    last = lake.commits()[-1]
    foreign = {**last, "batch_id": last["batch_id"] + 1, "commit_id": "foreign"}
    steal = crash_at(monkeypatch, "before_changelog", 1, lambda: commit_by_hand(spark, lake, foreign))
    with steal, pytest.raises(FencedError, match="another driver committed batch 2"):
        run_once(spark, lake)
    assert [c["commit_id"] for c in lake.commits()][-1] == "foreign"


def other_driver(lake: Lake) -> subprocess.CompletedProcess[str]:
    """Run a second driver, with a store of its own, to the end."""
    path = lake.path.with_name("other.toml")
    path.write_text(lake.path.read_text().replace('store = "store"', 'store = "other-store"'))
    return killed_run(lake, config=path)


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=pytest.mark.slow) for point in ("computed", "after_changelog")]
)
def test_second_driver_with_another_store(
    spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    lake = half.copy(tmp_path / "lake")
    others: list[subprocess.CompletedProcess[str]] = []
    pause = crash_at(monkeypatch, point, 1, lambda: others.append(other_driver(lake)))
    with pause, pytest.raises((FencedError, PipelineStateError), match=r"another driver"):
        run_once(spark, lake)
    assert others[0].returncode == 0, others[0].stderr
    assert_same(lake, expected)
    # The loser's store is stale now, and must be found so.
    run_once(spark, lake)
    assert_same(lake, expected)


@pytest.mark.slow
def test_appends_of_one_batch_at_the_same_moment(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(tmp_path), CHANGELOG)
    tables["t"].create(pa.schema([("id", pa.int64())]), "")

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(5)
        yield from batches

    def append() -> str:
        try:
            tables["t"].append(spark.range(1).mapInArrow(slowly, "id long"), "app", 7, {"batch_id": 7})
        except FencedError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        first, second = sorted(done.result() for done in [pool.submit(append) for _ in range(2)])
    assert first == ""
    assert "another process writes batch or step 7 of" in second
    assert tables["t"].read().count() == 1


def test_fresh_checkpoint_is_refused(spark: SparkSession, half: Lake, tmp_path: Path) -> None:
    lake = half.copy(tmp_path / "lake")
    shutil.rmtree(lake.config.checkpoint)
    with pytest.raises(PipelineStateError, match=r"checkpoint: .*is missing.*up to 1; put the old checkpoint back, or"):
        run_once(spark, lake)


@pytest.mark.parametrize("first_commit", [True, False], ids=["young", "old"])
def test_lost_changelog_is_refused(spark: SparkSession, half: Lake, tmp_path: Path, first_commit: bool) -> None:  # noqa: FBT001
    lake = half.copy(tmp_path / "lake")
    shutil.rmtree(lake.warehouse / schemas.CHANGELOG)
    if not first_commit:  # Spark keeps a hundred
        (Path(lake.config.checkpoint) / "commits" / "0").unlink()
    with pytest.raises(PipelineStateError, match=r"checkpoint: .*the changelog has none; restore the tables, or"):
        run_once(spark, lake)


@pytest.mark.slow
def test_older_checkpoint_is_refused(spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path) -> None:
    """Its next batches would have numbers that are committed, and be skipped with all that is in them."""
    lake = expected.copy(tmp_path / "lake")
    shutil.rmtree(lake.config.checkpoint)
    shutil.copytree(half.config.checkpoint, lake.config.checkpoint)
    with pytest.raises(PipelineStateError, match=r"goes on with batch 2, .* ends with 3: the checkpoint is an older"):
        run_once(spark, lake)


def test_checkpoint_older_by_one_batch_is_refused(spark: SparkSession, half: Lake, tmp_path: Path) -> None:
    """Its next batch has the number of the last committed one, but other input: that must not be skipped."""
    lake = half.copy(tmp_path / "lake")
    for file in (*Path(lake.config.checkpoint).rglob("1"), *Path(lake.config.checkpoint).rglob(".1.crc")):
        if file.is_file():
            file.unlink()
    lake.correct(spark)
    with pytest.raises(PipelineStateError, match=r"goes on with batch 1, .* ends with 1: the checkpoint is an older"):
        run_once(spark, lake)


def test_older_changelog_is_refused(spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path) -> None:
    lake = expected.copy(tmp_path / "lake")
    shutil.rmtree(lake.warehouse / schemas.CHANGELOG)
    shutil.copytree(half.warehouse / schemas.CHANGELOG, lake.warehouse / schemas.CHANGELOG)
    lake.correct(spark)
    with pytest.raises(PipelineStateError, match=r"goes on with batch 4, .* ends with 1: the changelog is an older"):
        run_once(spark, lake)


def test_offsets_that_another_driver_has_written_over_are_refused(
    spark: SparkSession, half: Lake, tmp_path: Path
) -> None:
    """The next batch would begin where the other one's plan ended, and the events in between would be in no table and no count."""
    lake = half.copy(tmp_path / "lake")
    offsets = Path(lake.config.checkpoint) / "offsets" / "1"
    text = offsets.read_text()
    assert '{"logOffset":1}' in text
    offsets.write_text(text.replace('{"logOffset":1}', '{"logOffset":2}'))
    offsets.with_name(".1.crc").unlink(missing_ok=True)
    with pytest.raises(
        PipelineStateError, match=r"offsets/1' is not what batch 1 of 'crash' has read: .*put that file back"
    ):
        run_once(spark, lake)
    offsets.write_text(text)
    run_once(spark, lake)
    assert [commit["batch_id"] for commit in lake.commits()] == [0, 1, 2, 3]


def test_interrupted_batch_with_other_offsets_is_refused(
    spark: SparkSession, half: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its side tables have the rows of the offsets that were there: the rerun would skip them, and read others."""
    lake = half.copy(tmp_path / "lake")
    crashes(spark, lake, monkeypatch, "after_late")
    offsets = Path(lake.config.checkpoint) / "offsets" / "2"
    text = offsets.read_text()
    offsets.write_text(text.replace('"batchTimestampMs":1', '"batchTimestampMs":2'))
    offsets.with_name(".2.crc").unlink(missing_ok=True)
    with pytest.raises(PipelineStateError, match=r"batch 2 of 'crash' was interrupted, and its offsets are no longer"):
        run_once(spark, lake)
    offsets.write_text(text)
    run_once(spark, lake)
    assert [commit["batch_id"] for commit in lake.commits()] == [0, 1, 2, 3]


def test_copied_metadata_does_not_hide_a_newer_batch(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(tmp_path), CHANGELOG)
    tables["t"].create(pa.schema([("id", pa.int64())]), "")
    batches: list[Row] = [{"batch_id": 0}, {"batch_id": 1}, {"batch_id": 0, "copied": True}]
    for version, metadata in enumerate(batches):
        tables["t"].append(spark.range(1), "app", version, metadata)
    last = tables["t"].last_commit()
    assert last is not None
    assert last.metadata["batch_id"] == 1
    assert [c.metadata["batch_id"] for c in tables["t"].commits()] == [0, 1]


def test_copied_metadata_stands_where_the_batch_has_no_log_file_any_more(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(tmp_path), CHANGELOG)
    tables["t"].create(pa.schema([("id", pa.int64())]), "")
    tables["t"].append(spark.range(1), "app", 0, {"batch_id": 4, "copied": True})
    last = tables["t"].last_commit()
    assert last is not None
    assert last.metadata["batch_id"] == 4


def test_store_is_locked_while_a_driver_lives(half: Lake, tmp_path: Path) -> None:
    lake = half.copy(tmp_path / "lake")
    with (
        locked_store(lake.config),
        pytest.raises(LockedError, match=r"locked by process \d+"),
        locked_store(lake.config),
    ):
        pass
    with locked_store(lake.config):
        pass


def test_first_checkpoint_of_two_stays(spark: SparkSession, tmp_path: Path) -> None:
    tables, uri = Tables(spark, str(tmp_path), CHANGELOG), f"{tmp_path}/checkpoint/metadata"
    for text in ("first", "second"):
        tables.write_text_once(uri, text)
    assert tables.read_text(uri) == "first"
    assert {name for name in tables.names(f"{tmp_path}/checkpoint") if not name.endswith(".crc")} == {"metadata"}
