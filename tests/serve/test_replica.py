"""A replica is the changelog folded at its batch: whatever is committed, applied, attempted, lost or erased beside it."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.store_engines import ENGINES, StoreEngine
from sessionlake.engine.pending import CORRUPT, cause_of, erase_store, mark
from sessionlake.errors import NoBatchesError
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.serve.replica import NotLocalError, Replica, View
from sessionlake.store import runs
from sessionlake.store.runs import Run
from sessionlake.store.secondary import SecondarySegments, identity
from sessionlake.stores import open_replica
from sessionlake.testing import SessionizerHarness, TableHarness
from tests.engine.task_shards import TaskShards
from tests.serve.replica_support import GAP, GRACE, MINUTE, RETENTION, ROW, SPECS, Stream, log_commit, micros
from tests.serve.views_support import table_config, view_of
from tests.support import examples


def all_of(view: View) -> list[dict[str, Any]]:
    """Read all, by pages of two keys, and again key by key."""
    found, after = [], None
    while True:
        page = view.scan(None, None, 2, after=after)
        found += [{name: row[name] for name in ROW} for row in page.rows.to_pylist()]
        if page.last_key is None:
            break
        after = page.last_key
    one_by_one = [
        row
        for key in sorted({row["session_key"] for row in found}, key=str.encode)
        for row in view.find([key]).select(ROW).to_pylist()
    ]
    assert one_by_one == found
    return found


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "", "é", "\U0001f600", "a\0b", "zz"]),
        st.integers(0, 90).map(lambda n: n * MINUTE),
    ),
    max_size=8,
)


@examples(12)
@given(
    st.lists(st.tuples(st.sampled_from(["run", "abandon", "lose", "erase"]), EVENTS), min_size=1, max_size=7),
    st.sampled_from(ENGINES),
)
def test_view_is_the_changelog_at_its_batch(
    steps: list[tuple[str, list[tuple[str, int]]]], engine: StoreEngine
) -> None:
    with TemporaryDirectory() as directory:
        stream = Stream(Path(directory), engine=engine)
        stream.run([("a", 0), ("b", 0)])
        replica = open_replica(stream.config)
        for what, rows in steps:
            before, held = replica.refresh(), stream.shown()
            attempted = stream.attempt(rows)
            # The tasks have applied what was committed before, and written what is not committed yet.
            assert all_of(replica.refresh()) == held
            if what == "run":
                stream.commit(attempted)
            assert all_of(before) == held
            view = replica.refresh()
            assert (view.batch_id, all_of(view)) == (stream.batch_id, stream.shown())
            if what in ("lose", "erase"):
                # Whatever a shard is asked for from now on, it is not here.
                folder = Path(stream.config.driver_store_dir)
                mark(folder, 0) if what == "erase" else erase_store(folder / "0")
                if stream.expected[0] is not None:
                    with pytest.raises(NotLocalError):
                        view.scan(None, None, 10)
                    assert 0 in replica.refresh().missing
                return


def test_store_of_another_commit_is_missing(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.run([("a", 0), ("b", 0)])
    stream.run([("a", MINUTE), ("b", MINUTE)])
    shard = open_replica(stream.config).view.shard_of("a")
    pending = tmp_path / f"store/p/{shard}.pending/c2.arrow"
    away = pending.rename(tmp_path / "away")
    view = open_replica(stream.config).view
    assert view.missing == {shard: "it is at commit c1, and the next batch brings it up to date"}
    with pytest.raises(NotLocalError, match=f"^store: shard {shard} is not here at batch 1 "):
        view.find(["a"])
    # Of the same batch a shard that was missing is looked for again.
    lacking = open_replica(stream.config)
    away.rename(pending)
    assert (lacking.view.missing, lacking.refresh().missing) == (
        {shard: "it is at commit c1, and the next batch brings it up to date"},
        {},
    )


def test_a_view_reads_nothing_of_a_store_that_is_to_be_erased(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.run([("a", 0)])
    view = open_replica(stream.config).view
    assert view.find(["a"]).num_rows == 1
    mark(Path(stream.config.driver_store_dir), view.shard_of("a"))
    with pytest.raises(NotLocalError):
        view.find(["a"])


def test_damage_makes_a_shard_missing_and_is_marked_for_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is verified when it is read first, so that neither the opening nor the stream need have seen the damage."""
    monkeypatch.setattr(runs, "_PAGE", 64)
    stream = Stream(tmp_path)
    for _ in range(2):
        stream.run([("a", 0), ("b", 0)])
    replica = open_replica(stream.config)
    shard = replica.view.shard_of("a")
    store = Path(stream.config.driver_store_dir) / str(shard)
    runs_there = sorted(store.glob("*.run"))
    for run in runs_there:
        content = bytearray(run.read_bytes())
        content[Run(run)._parts.values.start] ^= 1
        run.write_bytes(content)
    view = open_replica(stream.config).view
    assert view.missing == {}
    sessions = view.session_store()
    for read in (lambda: view.find(["a"]), lambda: list(sessions.fetch("a")), lambda: view.find(["a"])):
        with pytest.raises(NotLocalError, match=f"shard {shard} is not here .*page .* is not as it was written"):
            read()
    assert list(view.lacking) == [shard]
    replica = open_replica(stream.config)
    assert replica.view.missing == {shard: "it is damaged, and the next batch restores it"}
    assert cause_of(store) == CORRUPT
    stream.attempt([("a", MINUTE)])  # which finds no store, so that the driver hands it its rows
    assert cause_of(store) is None


def test_damage_of_rocksdb_makes_a_shard_missing_and_is_marked_too(tmp_path: Path) -> None:
    stream = Stream(tmp_path, engine="rocksdb")
    for _ in range(2):
        stream.run([("a", 0), ("b", 0)])
    shard = open_replica(stream.config).view.shard_of("a")
    store = Path(stream.config.driver_store_dir) / str(shard)
    view = open_replica(stream.config).view
    # Whatever a block has, a changed byte of it breaks its checksum.
    for table in store.glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[1] ^= 1
        table.write_bytes(content)
    with pytest.raises(NotLocalError, match=f"shard {shard} is not here .*checksum mismatch"):
        view.find(["a"])
    assert open_replica(stream.config).view.missing == {shard: "it is damaged, and the next batch restores it"}
    stream.attempt([("a", MINUTE)])
    assert cause_of(store) is None


@pytest.mark.parametrize(("most", "keys", "last"), [(0, "a", "a"), (1, "a", "a"), (2, "ab", "b"), (3, "abc", None)])
def test_a_page_looks_at_no_more_values_than_it_may(tmp_path: Path, most: int, keys: str, last: str | None) -> None:
    stream = Stream(tmp_path)
    stream.run([(key, 0) for key in "abc"])
    page = open_replica(stream.config).view.scan(None, None, 10, most=most)
    assert (page.rows["session_key"].to_pylist(), page.last_key, page.looked) == (list(keys), last, len(keys))


@pytest.mark.parametrize("engine", ENGINES)
def test_reading_writes_nothing_into_the_store(tmp_path: Path, engine: StoreEngine) -> None:
    stream = Stream(tmp_path, engine=engine)
    stream.run([("a", 0), ("b", 0)])

    def files() -> dict[str, int]:
        return {str(file): file.stat().st_mtime_ns for file in (tmp_path / "store").rglob("*")}

    before = files()
    all_of(open_replica(stream.config).view)
    assert files() == before


def test_range_is_inclusive_and_ends_after_whole_keys(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.run([(key, n * 20 * MINUTE) for key in "abcd" for n in (0, 1)])
    view = open_replica(stream.config).view
    page = view.scan("b", "d", 2)
    assert (page.rows["session_key"].to_pylist(), page.last_key) == (["b", "b", "c", "c"], "c")
    page = view.scan("b", "d", 2, after=page.last_key)
    assert (page.rows["session_key"].to_pylist(), page.last_key) == (["d", "d"], None)


def test_before_the_first_batch(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    with pytest.raises(NoBatchesError):
        open_replica(stream.config)


def test_settings_are_those_of_the_batch(tmp_path: Path) -> None:
    """A config that was changed since must not change what the view shows."""
    stream = Stream(tmp_path)
    stream.run([("a", 0), ("b", 44 * MINUTE)])
    longer = stream.config.model_copy(
        update={"section": stream.config.section.model_copy(update={"retention": "9 days"})}
    )
    assert all_of(open_replica(longer).view) == stream.shown()
    assert open_replica(longer).view.complete_from_us == 4 * MINUTE


def test_an_expired_session_is_gone_with_the_batch_that_removes_it(tmp_path: Path) -> None:
    """Though the store has it until the next batch: the delete waits beside it. A view of the batch before shows it still."""
    ttl = {"pattern": "scan", "ttl": "1 minute", "clock": "stream", "every": "1 us"}
    config, windows = Stream(tmp_path).config, SessionWindows(GAP, GRACE, RETENTION)
    schema = {"price": "long", "name": "string"}
    with SessionizerHarness(windows, SPECS, ttl=ttl, schema=schema) as harness:
        shards = harness._shards = TaskShards(1, tmp_path / "store/p", lambda: None)
        views = []
        for number, batch in enumerate([{"a": 0, "b": 1, "z": 20}, {"z": 21}, {"z": 22}]):
            harness.process(
                [{"key": key, "time_us": at * MINUTE, "price": 1, "name": "n"} for key, at in batch.items()]
            )
            types, live = harness._operator.spec.columns.types, {"grace_us": GRACE, "retention_us": RETENTION}
            log_commit(tmp_path, number, shards.commit_id, harness.state, shards.expected, types, live)
            views.append(Replica(config).refresh())
            stored = SecondarySegments(tmp_path / "store/p/0")
            if number == 1:
                assert {key for segment in stored.segments for key, _ in stored.items(segment)} == {b"a", b"b", b"z"}
        for view, keys in zip(views, [["a", "b", "z"], ["z"], ["z"]], strict=True):
            page = view.scan(None, None, 10)
            assert (page.rows["session_key"].to_pylist(), page.looked) == (keys, len(keys))
            assert view.find(["a", "b", "z"])["session_key"].to_pylist() == keys


def test_a_store_that_was_made_anew_in_its_place_is_another_one(tmp_path: Path) -> None:
    assert identity(tmp_path) is None
    (tmp_path / "IDENTITY").write_bytes(b"one")
    before = identity(tmp_path)
    assert before == identity(str(tmp_path))
    # The directory's number may come back with the next directory.
    (tmp_path / "IDENTITY").write_bytes(b"two")
    assert before != identity(tmp_path)


def test_rows_of_segments_are_shown_until_they_are_over(tmp_path: Path) -> None:
    """By the clock of the view's batch, wherever they lie: of a key that was written again the new row."""
    ttl, keys = {"pattern": "segments", "ttl": "30 minutes"}, "dbcae"
    config = table_config(tmp_path, ttl=ttl)
    with TableHarness({"v": "long"}, ttl=ttl) as harness:
        for n, key in enumerate([*keys, "d"]):
            harness.process([{"key": key, "time_us": n, "v": n}], clock_us=n * 8 * MINUTE)
        rows = {"a": 3, "d": 5, "e": 4}
        for clock, shown, stored in ((45, {**rows, "c": 2}, "c"), (46, rows, "c"), (70, {}, "d")):
            harness.process([{"kind": "tick"}], clock_us=clock * MINUTE)
            assert stored in harness.stored_keys()
            view = view_of(config, harness)
            found, after = [], None
            while True:
                page = view.scan(None, None, 2, after=after)
                found += page.rows.to_pylist()
                if page.last_key is None:
                    break
                after = page.last_key
            assert [(row["table_key"], row["v"]) for row in found] == sorted(shown.items())
            assert view.find([*keys, "x"])["table_key"].to_pylist() == sorted(shown)


def test_rows_of_a_table(tmp_path: Path) -> None:
    """Upserts, and a deletion whose marker is no row; read while the table's own process has the store open."""
    config = table_config(tmp_path)
    with TableHarness({"v": "long"}) as harness:
        harness.process([{"key": key, "time_us": n, "v": n} for n, key in enumerate("abc")])
        harness.process([{"key": "b", "time_us": 9, "v": None}, {"key": "a", "time_us": 9, "v": 1, "deleted": True}])
        view = view_of(config, harness)
        expected = [
            {"table_key": k, "event_time": r["event_time"], "v": r["v"], "revision": r["revision"]}
            for k, r in harness.rows().items()
        ]
        found = [{**row, "event_time": micros(row["event_time"])} for row in view.scan(None, None, 10).rows.to_pylist()]
        assert found == expected
        assert [row["table_key"] for row in found] == ["b", "c"]
        assert view.find(["a", "c"])["v"].to_pylist() == [2]
        assert view.complete_from_us is None
