"""What an operator yields before the shuffle: rows for shards, files of its task, numbers, and ticks for every shard."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sessionlake.columnar.keys import shard_of
from sessionlake.engine import exchange, outputs
from sessionlake.engine.operator import TICK, Aside, BatchContext, Counted, Inputs, Keyed, ShardResult, Split, StateStat
from sessionlake.engine.outputs import CHANGES, Output
from sessionlake.engine.reports import Outcome, places_of
from sessionlake.engine.shard import KEPT, ShardTask
from sessionlake.engine.split import SplitTask
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.segmented import SegmentedSessionStore
from sessionlake.warehouse.batch_commit import BatchCommit, Places, Settings
from sessionlake.warehouse.delta_log import Commit

SHARDS = 5
MARKS = [("batch_id", pa.int64()), ("commit_id", pa.string())]
ODD = pa.schema([("n", pa.int64()), *MARKS])


@dataclass(frozen=True)
class Evens:
    """Sends even numbers to the shard of their text, writes odd ones, and counts both; a shard's cursor adds up its own."""

    ticks: bool = False

    def split(self, rows: pa.Table, context: BatchContext) -> Split:
        del context
        numbers = rows["n"].to_numpy()
        odd = pa.array(numbers % 2 == 1)
        yield Aside("odd", rows.filter(odd))
        even = rows.filter(pa.array(numbers % 2 == 0))
        yield Keyed("even", even["n"].cast(pa.string()).combine_chunks(), even)
        yield Counted({"read": len(numbers), StateStat("max_n", greatest=True): int(numbers.max())})

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> SegmentedSessionStore:
        return SegmentedSessionStore(path, 60_000_000, opened)

    def apply(self, inputs: Inputs, store: SegmentedSessionStore, context: BatchContext) -> ShardResult:
        del store
        found = sum(inputs["even"]["n"].to_pylist()) if "even" in inputs else 0
        stats = (
            {"ticks": inputs[TICK].num_rows, "seen": sum(inputs[TICK]["read"].to_pylist())} if TICK in inputs else {}
        )
        cursor = {"sum": context.cursor.get("sum", 0) + found}
        return ShardResult(ODD.empty_table().select(["n"]), None, stats={"found": found, **stats}, cursor=cursor)

    def commit(self, *_: Any) -> None:
        raise AssertionError("nothing is written")

    restored = commit


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)})


def output(root: Path, kind: str = "odd") -> Output:
    (root / kind).mkdir(exist_ok=True)
    return Output(kind, kind, str(root / kind), ODD, lambda rows: rows)


def run(
    root: Path, operator: Evens, *batches: pa.RecordBatch, cursors: tuple[Mapping[str, Any], ...] = ()
) -> list[tuple[str, dict[str, Any]]]:
    context, written = BatchContext(3, "c", {}, clock_us=7), (output(root), output(root, CHANGES))
    wire = SplitTask(operator, context, written, SHARDS).run(batches)
    task = ShardTask(operator, context, written, str(root / "store"), (None,) * SHARDS, cursors=cursors)
    return [(report["kind"][0].as_py(), json.loads(report["payload"][0].as_py())) for report in task.run(wire)]


def test_rows_go_to_the_shards_of_their_keys_and_the_rest_into_one_file_of_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "ROWS_HELD", 3)
    reports = run(tmp_path, Evens(), batch(1, 2, 3, 4), batch(5, 7, 9, 10))
    (split,) = [report for kind, report in reports if kind == exchange.SPLIT]
    assert split["stats"] == {"read": 8, "max_n": 10}
    (file,) = split["files"]
    (path,) = (tmp_path / "odd").glob("*.parquet")
    assert (file["path"], file["size"], file["table"]) == (path.name, path.stat().st_size, "odd")
    assert json.loads(file["stats"])["numRecords"] == 5
    rows = pq.read_table(path).to_pylist()
    assert rows == [{"n": n, "batch_id": 3, "commit_id": "c"} for n in (1, 3, 5, 7, 9)]
    shards = {report["shard"]: report["stats"]["found"] for kind, report in reports if kind == exchange.DONE}
    expected: dict[int, int] = {}
    for n in (2, 4, 10):
        shard = int(shard_of(pa.array([str(n)]), SHARDS)[0])
        expected[shard] = expected.get(shard, 0) + n
    assert shards == expected, "a shard without rows is not run, and its store not opened"


def test_with_ticks_every_shard_runs_and_knows_what_every_task_counted(tmp_path: Path) -> None:
    reports = run(tmp_path, Evens(ticks=True), batch(1), batch(3))
    shards = {report["shard"]: report["stats"] for kind, report in reports if kind == exchange.DONE}
    assert shards == {shard: {"found": 0, "ticks": 1, "seen": 2} for shard in range(SHARDS)}


def test_a_task_without_rows_ticks_too() -> None:
    wire = list(SplitTask(Evens(ticks=True), BatchContext(0, "c", {}), (), SHARDS).run([]))
    assert [row["shard"][0].as_py() for row in wire] == list(range(SHARDS))
    assert list(SplitTask(Evens(), BatchContext(0, "c", {}), (), SHARDS).run([])) == []


def test_a_shards_cursor_comes_back_to_it(tmp_path: Path) -> None:
    first = {r["shard"]: r["cursor"] for kind, r in run(tmp_path, Evens(), batch(2, 4, 6, 8)) if kind == exchange.DONE}
    cursors = tuple(first.get(shard, {}) for shard in range(SHARDS))
    again = run(tmp_path, Evens(), batch(2, 4, 6, 8), cursors=cursors)
    assert {r["shard"]: r["cursor"] for kind, r in again if kind == exchange.DONE} == {
        shard: {"sum": 2 * cursor["sum"]} for shard, cursor in first.items()
    }


def test_what_a_batch_committed_is_read_back_as_it_was() -> None:
    places = Places(("a/1", "b/2"), (0, None, 1), (2,), {"missing": 1})
    settings = Settings({"gap": 1}, {"grace_us": 2}, {"k": "string"})
    made = BatchCommit(
        "p",
        "id",
        4,
        "c",
        {"watermark_us": 5},
        {"input": 1},
        ("c", None, "b"),
        "3/9",
        settings,
        None,
        6,
        7,
        places,
        driver="h",
    )
    for one in (made, replace(made, cursors=({"sum": 1}, {}, {}))):
        metadata = json.loads(json.dumps(one.metadata()))
        assert replace(BatchCommit.of(Commit(8, metadata), "session_changelog"), version=-1) == one
        assert ("cursors" in metadata) == bool(one.cursors)


def test_a_shard_without_rows_keeps_its_place() -> None:
    before = Places(("a/1", "b/2"), (0, 1, None))
    outcome = Outcome({}, frozenset(), {}, (), (), {0: ("c/3", KEPT)})
    assert places_of(outcome, 3, before) == Places(("b/2", "c/3"), (1, 0, None), (), {})
    assert places_of(outcome, 1, before).at == (0,)
