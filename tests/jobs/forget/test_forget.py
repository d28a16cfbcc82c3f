"""The right to erasure through the real engine: no trace of a key is left, nothing of the others is missing."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.errors import JobError
from sessionlake.jobs.compact import compact
from sessionlake.jobs.compact.fold import MERGE, REWRITE
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import WaitBudget, check, forget
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.lock import locked_store
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine import crash_support
from tests.jobs.backup.copies import copy_pipeline
from tests.jobs.forget.forget_support import ANNA, GONE, SECTIONS, STAY, build, kept_rows, live, stream, traces, until
from tests.support import make_config, write_rows

TABLES = (
    "sessions",
    "corrections",
    "correction_outcomes",
    "dead_letters",
    "events",
    "job_runs",
    "late_events",
    "session_changelog",
    "topic_tombstones",
)
POINTS = [
    "before_tombstones",
    "after_tombstones",
    f"before_{TABLES[0]}",
    "files_written",
    *[f"after_{name}" for name in TABLES],
    "kept_out",
    "before_file",
    "before_log",
    "before_rename",
    "before_store",
]
"""In the order in which a run passes them. Between the end of a table and the beginning of the next nothing happens."""
TOML = """
pipeline = { name = "test", warehouse = "warehouse", shards = 2, trigger = "1 second", archive = true }
source = { kind = "files", path = "events", format = "json", max_files_per_batch = 2 }
event = { key = "key", time = "time_us", time_unit = "us" }
session = { gap = "10 us", grace = "20 us", retention = "60 us" }
aggregates = { total = "sum(v)" }
"""


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("forget") / "original"
    root.mkdir()
    build(spark, root)
    return root


@pytest.fixture
def config(original: Path, tmp_path: Path) -> Config:
    return copy_pipeline(original, tmp_path / "copy", **SECTIONS)


def crash_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def hit(name: str) -> None:
        if name == f"forget_{point}":
            raise KeyboardInterrupt(name)

    monkeypatch.setattr(failpoints, "hit", hit)


@pytest.mark.slow
def test_killed_then_nothing_is_left_and_the_stream_goes_on(
    spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {path.split("/")[0] for path in traces(config)} >= {
        *("session_changelog", "sessions", "late_events", "dead_letters", "corrections", "events", "job_runs", "test"),
        "topic_tombstones",
    }
    run(spark, config, once=True)
    others, kept = [s for s in live(spark, config) if s[0] in STAY], kept_rows(spark, config)
    crash_at(monkeypatch, "after_sessions")
    with pytest.raises(KeyboardInterrupt, match="after_sessions"):
        forget(spark, config, GONE, run_id="f")
    monkeypatch.undo()
    assert traces(config) != []
    report = forget(spark, config, GONE, run_id="f")
    assert (report.counts["found"], traces(config)) == (0, []), report.notes
    assert [line for line in report.notes if any(key in line for key in GONE)] == []
    assert [line for line in report.notes if line.startswith("key of line")] != []
    assert report.counts["source_rows"] > 0
    assert kept_rows(spark, config) == kept
    assert forget(spark, config, GONE, run_id="f").repeated

    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    commits = [tables[schemas.CHANGELOG].commit(v) for v in range(tables[schemas.CHANGELOG].latest_version() + 1)]
    assert any(commit is not None and commit.metadata.get("copied") for commit in commits)
    # Every store is lost: what the tables restore has no such key, and the streams go on over the removed files.
    shutil.rmtree(config.pipeline.store)
    write_rows(
        Path(config.directory),
        "new.json",
        [{"key": key, "time_us": 1304 + 2 * i, "v": 1} for i, key in enumerate(STAY)],
    )
    run(spark, config, once=True)
    after = live(spark, config)
    assert [s for s in after if s[1] < 1300] == [s for s in others if s[1] < 1300]
    assert [(s[0], s[3]) for s in after if s[1] >= 1300] == [(s[0], s[3] + 1) for s in others if s[1] >= 1300]
    assert traces(config) == []


@pytest.mark.slow
@pytest.mark.parametrize("method", [MERGE, REWRITE])
def test_a_fold_that_had_read_the_keys_brings_none_back(
    spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    run(spark, config, once=True)
    with crash_support.crash_at(monkeypatch, "compact_tail_read", action=lambda: forget(spark, config, GONE) and None):
        report = compact(spark, config, method=method)
    assert report.counts["rows_folded"] > 0
    assert traces(config) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_every_point(spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = kept_rows(spark, config)
    for point in POINTS:
        crash_at(monkeypatch, point)
        with pytest.raises(KeyboardInterrupt, match=point):
            forget(spark, config, GONE, run_id="f")
    monkeypatch.undo()
    assert forget(spark, config, GONE, run_id="f").counts["found"] == 0
    assert traces(config) == []
    after = kept_rows(spark, config)
    assert {n: [r for r in rows if r in after[n]] for n, rows in kept.items()} == kept


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_beside_a_stream_it_waits_until_its_stores_are_removed(
    spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is a stream's; its batches are run when forget waits for them."""
    now = [0.0]
    stream_runs: list[Any] = []

    def wait(seconds: float) -> None:
        now[0] += seconds
        for step in stream_runs:
            step()

    waiting = WaitBudget(1_000_000, lambda: now[0], wait)
    with locked_store(config):
        with pytest.raises(
            JobError, match=r"has not read 9 corrections of the keys, 0 of them new; .* --run-id f"
        ) as caught:
            forget(spark, config, GONE, run_id="f", wait_budget=waiting)
        assert "\n" not in str(caught.value)

    def batch() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("sessionlake.stream.run.locked_store", lambda _: nullcontext())
            run(spark, config, once=True)

    stream_runs.append(batch)
    with locked_store(config):
        report = forget(spark, config, GONE, run_id="f", wait_budget=WaitBudget(60_000_000, lambda: now[0], wait))
    assert report.counts["stores_marked"] > 0
    assert not list(Path(config.store_dir).glob("*.forget"))
    assert report.counts["found"] > 0
    assert not any("stores" in note for note in report.notes[:-1])
    assert "a stream runs" in report.notes[-1]
    assert {s[0] for s in live(spark, config)} == set(STAY)
    done = forget(spark, config, GONE, run_id="f")
    assert (done.counts["found"], done.repeated, traces(config)) == (0, False, [])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_beside_a_live_stream(spark: SparkSession, config: Config) -> None:
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    path = Path(config.directory, "pipeline.toml")
    path.write_text(TOML)

    def has_carl_at(time_us: int) -> bool:
        return any(s[0] == "carl" and s[2] == time_us for s in live(spark, config))

    with stream(path, config) as process:
        report = forget(spark, config, GONE, run_id="f")
        assert report.counts["rows_of_session_changelog"] > 0
        assert report.counts["stores_marked"] > 0
        # There is no input: the stream removes what is marked all the same.
        assert not list(Path(config.store_dir).glob("*.forget"))
        assert not any("stores" in note for note in report.notes[:-1])
        for at in (2000, 2100):
            write_rows(Path(config.directory), f"{at}.json", [{"key": "carl", "time_us": at, "v": 1}])
            until(process, lambda at=at: has_carl_at(at))
        tombstone = tables[schemas.CORRECTIONS].read().count()
        expire(spark, config, where="session_key = 'carl' and unix_micros(session_end) = 2000")
        assert tables[schemas.CORRECTIONS].read().count() == tombstone + 1
        until(process, lambda: not has_carl_at(2000))
    assert forget(spark, config, GONE, run_id="f").counts["found"] == 0
    assert traces(config) == []


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_command_line(config: Config) -> None:
    path = Path(config.directory, "pipeline.toml")
    path.write_text(TOML)

    def called(keys: str, *options: str) -> Result:
        return CliRunner().invoke(main, ["forget", str(path), "--keys-file", "-", *options], input=keys)

    found = called("carl", "--proof")
    assert found.exit_code == 8, found.output
    assert "rows of session_changelog: " in found.output
    # Half a file that a crash left may hold anybody's key.
    half = Path(config.pipeline.warehouse, "session_changelog", "part-00001-crashed.snappy.parquet")
    unknown = called("nobody", "--proof")
    first, second, *_ = unknown.output.splitlines()
    assert (unknown.exit_code, second) == (8, "data files of session_changelog, unreadable: 1")
    assert (first.startswith("key of line 1 (sha256 "), first.endswith("): in no table")) == (True, True)
    assert "nobody" not in unknown.output
    half.unlink()
    other = called("carl\u2028carl\n", "--proof")
    assert other.exit_code == 0, other.output
    dry = called(f"{ANNA}\n", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert json.loads(dry.stdout.splitlines()[-1])["sessions"] > 0


def test_a_part_of_a_key_or_of_a_malformed_row_is_in_no_proof(spark: SparkSession, tmp_path: Path) -> None:
    config = make_config(tmp_path)
    broken = json.dumps({"key": ANNA, "v": 2}) + " broken"
    write_rows(tmp_path, "0.json", [{"key": ANNA, "time_us": 1000, "v": 1}, broken])
    assert run(spark, config, once=True).counts["dead"] == 1
    assert check(spark, config, ["ann", "longer", "org", "upsert", "1"]).places == {}


@pytest.mark.slow
def test_proof_of_other_keys_is_not_confused(spark: SparkSession, original: Path) -> None:
    """Parts of kept texts are no keys: `ann`, and the word `longer` in a malformed row."""
    config = copy_pipeline(original, original.with_name("same"), **SECTIONS)
    for half in Path(config.pipeline.warehouse).rglob("*00001-crashed*"):
        half.unlink()
    assert check(spark, config, ["ann", "longer", "car", "upsert", "1"]).places == {}
