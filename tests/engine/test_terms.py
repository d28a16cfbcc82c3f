"""The term of a driver: what it commits before a batch, after which Delta refuses the commits of the drivers before it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sessionlake.errors import FencedError, PipelineStateError
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse import schemas
from sessionlake.warehouse.data_file import DataFile
from sessionlake.warehouse.tables import Table, Tables
from tests.engine.crash_support import Lake, crash_at, killed_run, run_once

APP = "checkpoint"


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    tables = Tables(spark, str(tmp_path), CHANGELOG)
    tables["t"].create(pa.schema([("id", pa.int64())]), "")
    return tables["t"]


def begin(
    table: Table, term: int, batch_id: int = 0, *, guarded: bool = False, after_version: int | None = None
) -> int:
    after = table.latest_version() if after_version is None else after_version
    return table.begin_term(term, APP, batch_id, "host", after_version=after, guarded=guarded)


def commit(table: Table, term: int | None, batch_id: int, after_version: int) -> int:
    metadata = {"batch_id": batch_id, "checkpoint_id": APP}
    return table.commit_files([], APP, batch_id, metadata, after_version=after_version, term=term)


def test_driver_of_an_earlier_term_commits_nothing(table: Table) -> None:
    first = begin(table, 1)
    known = commit(table, 1, 0, first)
    second = begin(table, 2, batch_id=1)
    with pytest.raises(FencedError, match="another driver has begun to write since this one did"):
        commit(table, 1, 1, known)
    assert commit(table, 2, 1, second) == second + 1


def test_driver_of_an_earlier_term_is_refused_by_delta(table: Table) -> None:
    """The other one begins after our transaction has."""
    known = begin(table, 1)

    def files() -> Iterator[DataFile]:
        begin(table, 2)
        yield from ()

    with pytest.raises(FencedError, match="another driver has begun to write"):
        table.commit_files(files(), APP, 0, {"batch_id": 0}, after_version=known, term=1)


def test_no_term_begins_after_a_batch_that_its_driver_has_not_seen(table: Table) -> None:
    known = table.latest_version()
    commit(table, None, 0, known)
    with pytest.raises(FencedError, match="another driver committed batch 0"):
        begin(table, 1, after_version=known)


def test_term_of_another_driver_does_not_hide_its_batch(table: Table) -> None:
    known = commit(table, None, 0, table.latest_version())
    commit(table, None, 1, known)
    begin(table, 1, batch_id=2)
    with pytest.raises(FencedError, match="another driver committed batch 1"):
        begin(table, 2, batch_id=1, after_version=known)


def test_batch_that_is_committed_while_a_term_begins_is_seen(table: Table) -> None:
    known, asked = table.latest_version(), []

    def still_ours() -> None:
        if not asked:
            commit(table, None, 0, known)
        asked.append(True)

    with pytest.raises(FencedError, match="another driver committed batch 0"):
        table.begin_term(1, APP, 0, "host", after_version=known, guarded=False, still_ours=still_ours)


def test_later_term_on_the_changelog_is_looked_for_after_each_conflict(
    spark: SparkSession, tmp_path: Path, table: Table
) -> None:
    """Else of two drivers each could hold one table: its rows would be committed, and the batch would not."""
    changelog = Tables(spark, str(tmp_path), CHANGELOG)["changelog"]
    changelog.create(pa.schema([("id", pa.int64())]), "")
    ours, known, asked = begin(changelog, 1), table.latest_version(), []

    def still_ours() -> None:
        asked.append(True)
        changelog.refuse_other_term(1, ours)
        if len(asked) == 1:
            begin(changelog, 2)
            begin(table, 2)

    with pytest.raises(FencedError, match="another driver has begun to write"):
        table.begin_term(1, APP, 0, "host", after_version=known, guarded=False, still_ours=still_ours)
    assert (len(asked), table.term_in(table.latest_version())) == (2, 2)


def test_term_says_the_last_batch_and_is_none_itself(table: Table) -> None:
    begin(table, 1)
    assert (table.last_commit(), [*table.commits()], [*table.batch_commits()]) == (None, [], [])
    mark = table.newest_mark()
    assert mark is not None
    assert mark.version == table.latest_version()
    batch = commit(table, 1, 0, mark.version)
    stale = {"batch_id": -1, "copied": True, "maintenance": {"trimmed_to": 4}}
    table.commit_files([], "job", 0, stale, after_version=batch)
    for term in (2, 3):
        begin(table, term, batch_id=1)
    last = table.last_commit()
    assert last is not None
    assert (last.version, last.metadata["batch_id"]) == (table.latest_version(), 0)
    assert "maintenance" not in last.metadata, (
        "trims and erasures are looked for by the metadata of the job that did them"
    )
    assert [c.version for c in table.commits()] == [c.version for c in table.batch_commits()] == [batch]


def test_copy_by_a_job_that_has_not_seen_the_batch_hides_it_from_nobody(table: Table) -> None:
    known = begin(table, 1)
    batch = commit(table, 1, 0, known)
    commit(table, 1, 1, batch)
    begin(table, 2, batch_id=2)
    table.commit_files([], "job", 0, {"batch_id": 0, "copied": True}, after_version=table.latest_version())
    last = table.last_commit()
    assert last is not None
    assert last.metadata["batch_id"] == 1


def test_search_of_the_last_batch_ends_at_a_term(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A side table that never gets a row has a term for each start with a batch, and nothing else."""
    for term in range(12):
        begin(table, term)
    read: list[int] = []
    text = Table.text
    monkeypatch.setattr(Table, "text", lambda self, version: read.append(version) or text(self, version))
    assert (table.last_commit(), [*table.batch_commits()]) == (None, [])
    assert set(read) == {table.latest_version()}


def test_commit_of_a_release_without_terms_is_refused(table: Table) -> None:
    """Such a driver looks for commits of its own application alone."""
    known = commit(table, None, 0, begin(table, 1))
    begin(table, 2, batch_id=1)
    written = [a for v in range(known + 1, table.latest_version() + 1) for a in table._actions(v, "txn")]
    assert any(action["appId"] == APP and action["version"] >= 1 for action in written)


def test_release_without_terms_goes_on_where_no_batch_was_committed(table: Table) -> None:
    """It looks at the whole log of such a table, and would find itself fenced for good."""
    begin(table, 1)
    assert commit(table, None, 0, -1) == table.latest_version()


def test_term_is_found_though_its_commit_has_left_the_log(table: Table) -> None:
    known = commit(table, 1, 0, begin(table, 1))
    begin(table, 2, batch_id=1)
    table.checkpoint()
    for version in range(table.latest_version()):
        Path(table.uri, "_delta_log", f"{version:020d}.json").unlink()
    with pytest.raises(FencedError, match="another driver has begun to write"):
        commit(table, 1, 1, known)
    Path(table.uri, "_delta_log", f"{known + 1:020d}.json").unlink(missing_ok=True)


def test_own_term_is_no_other_drivers_though_its_commit_has_left_the_log(table: Table) -> None:
    known = begin(table, 1)
    for step in range(2):
        table.commit_files([], "job", step, {"copied": True}, after_version=table.latest_version())
    table.checkpoint()
    for version in range(table.latest_version()):
        Path(table.uri, "_delta_log", f"{version:020d}.json").unlink()
    assert commit(table, 1, 0, known - 1) == table.latest_version()


def test_rows_that_somebody_else_has_changed_refuse_a_term(table: Table) -> None:
    known = commit(table, None, 0, table.latest_version())
    table.append_rows(pa.table({"id": [1]}))
    with pytest.raises(PipelineStateError, match="is a WRITE that is not sessionlake's"):
        begin(table, 1, batch_id=1, guarded=True, after_version=known)


@pytest.mark.slow
def test_driver_of_other_settings_takes_over_a_computed_batch(
    spark: SparkSession, half: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the other one's grace more events are late. They were in late_events and in the changelog, and counted twice."""
    lake = half.copy(tmp_path / "lake")
    lake.configure(grace="10 hours", retention="11 hours")
    path = lake.path.with_name("other.toml")
    text = lake.path.read_text().replace('store = "store"', 'store = "other-store"')
    path.write_text(text.replace('grace = "10 hours"', 'grace = "15 minutes"'))

    def other_driver() -> None:
        assert killed_run(lake, "after_late", config=path).returncode == -9

    taken = crash_at(monkeypatch, "computed", 1, other_driver)
    with taken, pytest.raises(FencedError, match="another driver has begun to write"):
        run_once(spark, lake)
    assert [commit["batch_id"] for commit in lake.commits()] == [0, 1]
    run_once(spark, lake)
    rows = Counter(row["batch_id"] for row in lake.rows(schemas.LATE_EVENTS))
    assert [commit["counts"].get("late", 0) for commit in lake.commits()] == [rows[batch] for batch in range(4)]


def test_start_that_computes_nothing_stops_nobody(spark: SparkSession, half: Lake, tmp_path: Path) -> None:
    lake = half.copy(tmp_path / "lake")
    run_once(spark, lake)
    names = (schemas.CHANGELOG, schemas.LATE_EVENTS, schemas.DEAD_LETTERS, schemas.CORRECTION_OUTCOMES)
    tables = Tables(spark, str(lake.warehouse), CHANGELOG)
    before = {name: tables[name].latest_version() for name in names}
    run_once(spark, lake)
    assert {name: tables[name].latest_version() for name in names} == before
    for name in names:
        terms = [v for v in range(before[name] + 1) if tables[name].term_in(v) is not None]
        assert len(terms) == 2, f"one for each run with a batch, on {name}"
        properties = DeltaTable(lake.warehouse / name).metadata().configuration
        assert properties["delta.checkpointInterval"] == "100", (
            f"a term on each start would make one of ten starts slow, on {name}"
        )
