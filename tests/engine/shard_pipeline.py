"""A pipeline of one shard that adds up by key, without Spark."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.engine import exchange
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.engine.shard import ShardTask
from sessionlake.store.files import FileSegments

TOTALS = pa.schema([("key", pa.string()), ("total", pa.int64())])


class Totals:
    """Counts rows by key."""

    def split(self, batches: Any, context: BatchContext) -> Any:
        raise NotImplementedError

    def open_store(self, path: Path) -> FileSegments:
        return FileSegments(path)

    def apply(self, inputs: Inputs, store: FileSegments, context: BatchContext) -> ShardResult:
        del context
        seen = Counter(inputs["event"]["key"].to_pylist())
        keys = sorted(seen)
        old = store.get(0, [k.encode() for k in keys]) if store.segments else [None] * len(keys)
        totals = {k: int(value or 0) + seen[k] for k, value in zip(keys, old, strict=True)}
        table = pa.table({"key": totals.keys(), "total": totals.values()}, schema=TOTALS)
        return ShardResult(changes=table, writes=table, stats=totals)

    def commit(self, store: FileSegments, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        del context
        if not len(writes):  # the end of a restore, in the stores' own columns
            store.write({}, meta)
            return
        keys = [k.encode() for k in writes["key"].to_pylist()]
        store.write({0: (keys, [str(total).encode() for total in writes["total"].to_pylist()])}, meta)

    def restored(self, rows: pa.Table, store: FileSegments, part: int) -> Iterator[pa.Table]:
        del store, part
        assert len(rows), "a part without rows is none"
        yield rows.select(TOTALS.names)


class Pipeline:
    """The driver's part, and the tables: totals as of the last commit, and its id."""

    def __init__(self, root: Path, shard: int = 0) -> None:
        self.root, self.shard, self.totals, self.commit, self.attempts = root, shard, Counter[str](), "", 0
        self.causes: list[str] = []
        """Of the restores, in order."""

    def batch(self, disk: str, keys: list[str], *, committed: bool = True) -> tuple[str, dict[str, int]]:
        """Run a batch of the shard where it now belongs; return what became of its store, and the batch's totals."""
        self.attempts += 1
        commit_id = f"c{self.attempts}"
        events = {"event": pa.table({"key": pa.array(keys, pa.string())})}
        kind, payload = self._run(disk, commit_id, events, restoring=False)
        if kind == exchange.STALE:
            self.causes.append(json.loads(payload)["cause"])
            totals = pa.table({"key": self.totals.keys(), "total": self.totals.values()}, schema=TOTALS)
            kind, payload = self._run(
                disk, commit_id, {**events, **({"restore 0": totals} if len(totals) else {})}, restoring=True
            )
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
            (self.commit or None,) * (self.shard + 1),
            frozenset({self.shard} if restoring else ()),
        )
        wire = exchange.wire_rows((self.shard, kind, table) for kind, table in inputs.items())
        (report,) = task.run(wire)
        return report["kind"][0].as_py(), report["payload"][0].as_py()
