"""A pipeline of one shard that adds up by key, without Spark."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.config.store_engines import FILES, StoreEngine
from sessionlake.engine import exchange
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.engine.shard import ShardTask
from sessionlake.store.api import OpenSegments
from sessionlake.store.blocks import BlockStore
from sessionlake.store.files import FileSegments

TOTALS = pa.schema([("key", pa.string()), ("total", pa.int64())])


class TotalsStore(BlockStore):
    """One value a key, in one segment."""

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        return self._db.get(0, keys) if self._db.segments else [None] * len(keys)

    def put(self, keys: list[bytes], values: list[bytes], meta: dict[str, bytes]) -> None:
        self._db.write({0: (keys, values)} if keys else {}, meta)


class Totals:
    """Counts rows by key."""

    def split(self, batches: Any, context: BatchContext) -> Any:
        raise NotImplementedError

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> TotalsStore:
        return TotalsStore(path, opened)

    def apply(self, inputs: Inputs, store: TotalsStore, context: BatchContext) -> ShardResult:
        del context
        seen = Counter(inputs["event"]["key"].to_pylist())
        keys = sorted(seen)
        old = store.get([k.encode() for k in keys])
        totals = {k: int(value or 0) + seen[k] for k, value in zip(keys, old, strict=True)}
        table = pa.table({"key": totals.keys(), "total": totals.values()}, schema=TOTALS)
        return ShardResult(changes=table, writes=table, stats=totals)

    def commit(self, store: TotalsStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        del context
        # The end of a restore comes without rows, in the stores' own columns.
        rows = writes.to_pylist() if len(writes) else []
        store.put([row["key"].encode() for row in rows], [str(row["total"]).encode() for row in rows], meta)

    def restored(self, rows: pa.Table, store: TotalsStore, part: int) -> Iterator[pa.Table]:
        del store, part
        assert len(rows), "a part without rows is none"
        yield rows.select(TOTALS.names)


class Pipeline:
    """The driver's part, and the tables: totals as of the last commit, and its id."""

    def __init__(self, root: Path, shard: int = 0, engine: StoreEngine = FILES) -> None:
        self.engine = engine
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
            store_engine=self.engine,
        )
        wire = exchange.wire_rows((self.shard, kind, table) for kind, table in inputs.items())
        (report,) = task.run(wire)
        return report["kind"][0].as_py(), report["payload"][0].as_py()
