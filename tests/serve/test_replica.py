"""A replica is the changelog folded at its batch: whatever is committed, applied, attempted, lost or erased beside it."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlake.config.load import Config, parse_config
from sessionlake.engine.erasure import erase_store, mark
from sessionlake.engine.operator import BatchContext
from sessionlake.engine.shard import ShardTask
from sessionlake.errors import NoBatchesError
from sessionlake.operators.sessions.mapper import split_events
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.serve.decoded import TableDecoder
from sessionlake.serve.replica import LocalShard, NotLocalError, View
from sessionlake.standalone.shards import LocalShards
from sessionlake.store.secondary import SecondarySegments, identity
from sessionlake.stores import open_replica
from sessionlake.stream.watermark import advanced
from sessionlake.testing import SessionizerHarness, TableHarness
from sessionlake.testing.rows import event_rows
from sessionlake.warehouse.batch_commit import BatchCommit, Settings

SHARDS, MINUTE = 2, 60_000_000
GAP, GRACE, RETENTION = 5 * MINUTE, 10 * MINUTE, 40 * MINUTE
SPECS = {"total": "sum(price)", "last": "last(name)"}
ROW = ("session_key", "session_start", "session_end", "event_count", "revision", *SPECS)


class Recorded:
    """An operator whose changes are kept, as the changelog's files keep them."""

    def __init__(self, operator: Any, changes: list[dict[str, Any]]) -> None:
        self.operator, self.changes, self.stats = operator, changes, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operator, name)

    def apply(self, inputs: Any, store: Any, context: BatchContext) -> Any:
        result = self.operator.apply(inputs, store, context)
        self.changes += result.changes.to_pylist()
        self.stats.append(result.stats)
        return result


class Stream:
    """A pipeline's driver in a few lines: shard tasks as the engine runs them, and commits as files of Delta's log."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "lake/session_changelog/_delta_log").mkdir(parents=True)
        with SessionizerHarness(SessionWindows(GAP, GRACE, RETENTION), SPECS) as harness:
            self.operator = harness._make_operator([{"key": "a", "time_us": 0, "price": 1, "name": "x"}])
        self.state: dict[str, Any] = {}
        self.batch_id, self.attempts = -1, 0
        self.expected: list[str | None] = [None] * SHARDS
        self.live: dict[tuple[str, Any], dict[str, Any]] = {}

    @property
    def config(self) -> Config:
        return parse_config(
            {
                "pipeline": {"name": "p", "warehouse": "lake", "store": "store", "shards": SHARDS},
                "source": {"kind": "files", "path": "events", "format": "json"},
                "event": {"key": "key", "time": "time_us", "time_unit": "us"},
                "session": {"gap": "5 minutes", "grace": "10 minutes", "retention": "40 minutes"},
                "aggregates": SPECS,
            },
            self.root,
        )

    def attempt(self, rows: list[tuple[str, int]]) -> tuple[str, list[dict[str, Any]], dict[str, int], set[int]]:
        """Run the shard tasks of the next batch; nothing is committed by it."""
        self.attempts += 1
        commit_id = f"c{self.attempts}"
        context = BatchContext(self.batch_id + 1, commit_id, dict(self.state))
        events = [{"key": key, "time_us": us, "price": us % 7, "name": f"n{us % 5}"} for key, us in rows]
        bounds = self.operator.bounds(context)
        split = list(
            split_events(self.operator.spec, bounds, 0, event_rows(self.operator.spec.columns, list(enumerate(events))))
        )
        shards: LocalShards[Any] = LocalShards(SHARDS, lambda *_: None)
        inputs = shards._inputs(self.operator, split, {})
        changes: list[dict[str, Any]] = []
        operator: Any = Recorded(self.operator, changes)
        task = ShardTask(operator, context, (), str(self.root / "store/p"), tuple(self.expected))
        for shard, kinds in sorted(inputs.items()):
            list(task._run_shard(shard, kinds))
        touched = {s for s in inputs if (self.root / f"store/p/{s}.pending/{commit_id}.arrow").exists()}
        stats: dict[str, int] = {}
        for told in operator.stats:
            stats["max_time"] = (
                max(stats.get("max_time", -(1 << 60)), told["max_time"])
                if "max_time" in told
                else stats.get("max_time", -(1 << 60))
            )
        return commit_id, changes, stats, touched

    def commit(self, attempted: tuple[str, list[dict[str, Any]], dict[str, int], set[int]]) -> None:
        commit_id, changes, stats, touched = attempted
        self.batch_id += 1
        self.state = advanced(self.state, stats)
        for shard in touched:
            self.expected[shard] = commit_id
        for row in changes:
            name = (row["session_key"], row["session_start"])
            self.live.pop(name, None)
            if row["op"] == "upsert":
                self.live[name] = row
        types = {name: str(type_) for name, type_ in self.operator.spec.columns.types.items()}
        of = BatchCommit(
            "p", "id", self.batch_id, commit_id, self.state, {}, tuple(self.expected), "", Settings({}, {"grace_us": GRACE, "retention_us": RETENTION}, types), None, 0, 0
        )  # fmt: skip
        log = self.root / f"lake/session_changelog/_delta_log/{self.batch_id:020d}.json"
        log.write_text(
            json.dumps(
                {"commitInfo": {"userMetadata": json.dumps({"sessionlake": of.metadata()})}}, separators=(",", ":")
            )
            + "\n"
        )

    def run(self, rows: list[tuple[str, int]]) -> None:
        self.commit(self.attempt(rows))

    def shown(self) -> list[dict[str, Any]]:
        """The sessions of the changelog that an event within retention can still meet (docs/rules.md, rule 7)."""
        watermark = self.state.get("watermark_us")
        rows = [] if watermark is None else list(self.live.values())
        warm = [row for row in rows if micros(row["session_end"]) + GAP >= watermark - RETENTION]
        return sorted(
            ({name: row[name] for name in ROW} for row in warm),
            key=lambda r: (r["session_key"].encode(), r["session_start"]),
        )


def micros(time: Any) -> int:
    return int(time.timestamp()) * 1_000_000 + time.microsecond


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


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["run", "abandon", "lose", "erase"]), EVENTS), min_size=1, max_size=7))
def test_view_is_the_changelog_at_its_batch(steps: list[tuple[str, list[tuple[str, int]]]]) -> None:
    with TemporaryDirectory() as directory:
        stream = Stream(Path(directory))
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
    view = open_replica(stream.config).view
    shard = view.shard_of("a")
    (tmp_path / f"store/p/{shard}.pending/c2.arrow").unlink()
    view = open_replica(stream.config).view
    assert view.missing == {shard: "it is at commit c1"}
    with pytest.raises(NotLocalError, match=f"^store: shard {shard} is not here at batch 1 "):
        view.find(["a"])


def test_reading_writes_nothing_into_the_store(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
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
        update={"session": stream.config.sessions.model_copy(update={"retention": "9 days"})}
    )
    assert all_of(open_replica(longer).view) == stream.shown()
    assert open_replica(longer).view.complete_from_us == 4 * MINUTE


def test_rows_of_a_table(tmp_path: Path) -> None:
    """Upserts, and a deletion whose marker is no row; read while the table's own process has the store open."""
    made = Stream(tmp_path).config
    raw = {"columns": ["v"], "retention": "1 day"}
    config = parse_config(
        {
            "pipeline": {"name": "p", "warehouse": "lake", "store": "store", "shards": 1},
            "source": made.source.model_dump(exclude_none=True, include={"kind", "path", "format"}),
            "event": {"key": "key", "time": "time_us", "time_unit": "us"},
            "table": raw,
        },
        tmp_path,
    )
    with TableHarness({"v": "long"}) as harness:
        harness.process([{"key": key, "time_us": n, "v": n} for n, key in enumerate("abc")])
        harness.process([{"key": "b", "time_us": 9, "v": None}, {"key": "a", "time_us": 9, "v": 1, "deleted": True}])
        path = harness._shards.store(harness._operator, 0)._db.path
        types = harness._operator.spec.events.decoder.columns.types
        commit = BatchCommit("p", "id", 1, "c1", {}, {}, ("c1",), "", Settings({}, {}, {}), None, 0, 0)
        shard = LocalShard(path, identity(path), SecondarySegments(path))
        view = View(commit, {0: shard}, {}, TableDecoder(config, dict(types)))
        expected = [
            {"table_key": k, "event_time": r["event_time"], "v": r["v"], "revision": r["revision"]}
            for k, r in harness.rows().items()
        ]
        found = [{**row, "event_time": micros(row["event_time"])} for row in view.scan(None, None, 10).rows.to_pylist()]
        assert found == expected
        assert [row["table_key"] for row in found] == ["b", "c"]
        assert view.find(["a", "c"])["v"].to_pylist() == [2]
        assert view.complete_from_us is None
