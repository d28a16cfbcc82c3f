"""A shard moves between disks, batches are abandoned: no store that is behind is ever computed with. No Spark."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.engine import exchange
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.engine.shard import KEPT, NEW, RESTORED, ShardTask
from sessionlake.errors import StoreError
from sessionlake.store.rocks import RocksSegments
from tests.support import examples

TOTALS = pa.schema([("key", pa.string()), ("total", pa.int64())])


class Totals:
    """Counts rows by key."""

    def split(self, batches: Any, context: BatchContext) -> Any:
        raise NotImplementedError

    def open_store(self, path: Path) -> RocksSegments:
        return RocksSegments(path)

    def apply(self, inputs: Inputs, store: RocksSegments, context: BatchContext) -> ShardResult:
        del context
        seen = Counter(inputs["event"]["key"].to_pylist())
        keys = sorted(seen)
        old = store.get(0, [k.encode() for k in keys]) if store.segments else [None] * len(keys)
        totals = {k: int(value or 0) + seen[k] for k, value in zip(keys, old, strict=True)}
        table = pa.table({"key": totals.keys(), "total": totals.values()}, schema=TOTALS)
        return ShardResult(changes=table, writes=table, stats=totals)

    def commit(self, store: RocksSegments, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        del context
        keys = [k.encode() for k in writes["key"].to_pylist()]
        store.write({0: (keys, [str(total).encode() for total in writes["total"].to_pylist()])}, meta)

    def restored(self, inputs: Inputs, store: RocksSegments) -> Iterator[pa.Table]:
        del store
        yield inputs["restore"]


class Pipeline:
    """The driver's part, and the tables: totals as of the last commit, and its id."""

    def __init__(self, root: Path) -> None:
        self.root, self.totals, self.commit, self.attempts = root, Counter[str](), "", 0
        self.causes: list[str] = []
        """Of the restores, in order."""

    def batch(self, disk: str, keys: list[str], *, committed: bool = True) -> tuple[str, dict[str, int]]:
        """Run a batch of shard 0 where it now belongs; return what became of its store, and the batch's totals."""
        self.attempts += 1
        commit_id = f"c{self.attempts}"
        events = {"event": pa.table({"key": pa.array(keys, pa.string())})}
        kind, payload = self._run(disk, commit_id, events, restoring=False)
        if kind == exchange.STALE:
            self.causes.append(json.loads(payload)["cause"])
            totals = pa.table({"key": self.totals.keys(), "total": self.totals.values()}, schema=TOTALS)
            kind, payload = self._run(disk, commit_id, {**events, "restore": totals}, restoring=True)
        assert kind == exchange.DONE
        report = json.loads(payload)
        if committed:
            self.totals.update(keys)
            self.commit = commit_id
        return report["store"], report["stats"]

    def _run(self, disk: str, commit_id: str, inputs: Inputs, *, restoring: bool) -> tuple[str, bytes]:
        task = ShardTask(
            Totals(),
            BatchContext(self.attempts, commit_id, {}),
            (),
            str(self.root / disk),
            (self.commit or None,),
            frozenset({0} if restoring else ()),
            TOTALS,
        )
        wire = exchange.wire_rows((0, kind, table) for kind, table in inputs.items())
        (report,) = task.run(wire)
        return report["kind"][0].as_py(), report["payload"][0].as_py()


def test_shard_that_comes_back_is_restored_not_taken_up_where_it_was_left(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    assert pipeline.batch("a", ["x"]) == (NEW, {"x": 1})
    assert pipeline.batch("a", ["x"]) == (KEPT, {"x": 2})
    assert pipeline.batch("b", ["x", "y"]) == (RESTORED, {"x": 3, "y": 1})
    assert pipeline.batch("a", ["x", "y"]) == (RESTORED, {"x": 4, "y": 2})
    assert pipeline.batch("a", ["y"]) == (KEPT, {"y": 3})
    assert pipeline.causes == ["missing", "stale"]


def test_restore_in_parts_that_was_cut_off_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, parts = Pipeline(tmp_path), list[str]()

    def cut_off(point: str) -> None:
        if point == "worker_restoring":
            parts.append(point)
            if len(parts) == 2:
                raise KeyboardInterrupt

    assert pipeline.batch("a", ["x", "y", "z", "z"])[0] == NEW
    monkeypatch.setattr("sessionlake.engine.shard._WRITTEN_AT_A_TIME", 1)
    monkeypatch.setattr("sessionlake.engine.failpoints.hit", cut_off)
    with pytest.raises(KeyboardInterrupt):
        pipeline.batch("b", ["x"])
    assert pipeline.batch("b", ["x", "y", "z"]) == (RESTORED, {"x": 2, "y": 2, "z": 3})
    assert len(parts) == 4
    assert pipeline.causes == ["missing"] * 2


def test_shard_that_comes_back_before_the_other_disk_committed_is_kept(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.batch("a", ["x"])
    assert pipeline.batch("b", ["x"], committed=False) == (RESTORED, {"x": 2})
    assert pipeline.batch("a", ["x"]) == (KEPT, {"x": 2})


@examples(12)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.sampled_from("xyz"), min_size=1), st.booleans()), max_size=6)
)
def test_totals_are_right_wherever_the_shard_goes(steps: list[tuple[str, list[str], bool]]) -> None:
    with TemporaryDirectory() as folder:
        pipeline = Pipeline(Path(folder))
        for disk, keys, committed in steps:
            before = pipeline.totals.copy()
            _, totals = pipeline.batch(disk, keys, committed=committed)
            assert totals == {key: (before + Counter(keys))[key] for key in keys}


def test_store_that_another_task_holds_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.batch("a", ["x"])
    opened, held = Totals.open_store, RocksSegments(tmp_path / "a" / "0")

    def open_store(operator: Totals, path: Path) -> RocksSegments:
        try:
            return opened(operator, path)
        except StoreError:
            held.close()
            raise

    monkeypatch.setattr(Totals, "open_store", open_store)
    assert pipeline.batch("a", ["x"]) == (KEPT, {"x": 2})


def test_variables_of_the_store_are_the_executors_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(Path("${SESSIONLAKE_STORE}"))
    monkeypatch.setenv("SESSIONLAKE_STORE", str(tmp_path / "one"))
    pipeline.batch("clicks", ["x"])
    assert (tmp_path / "one" / "clicks" / "0" / "CURRENT").exists()
    monkeypatch.setenv("SESSIONLAKE_STORE", "relative")
    with pytest.raises(StoreError, match="let its variables hold an absolute path"):
        pipeline.batch("clicks", ["x"])
    monkeypatch.delenv("SESSIONLAKE_STORE")
    with pytest.raises(
        StoreError, match=r"needs the variable 'SESSIONLAKE_STORE'.*spark\.executorEnv\.SESSIONLAKE_STORE"
    ):
        pipeline.batch("clicks", ["x"])
