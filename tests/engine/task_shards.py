"""A harness's shards as the engine runs them, without Spark: stores lag one commit, pending files, restores, tasks that died."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.engine import exchange
from sessionlake.engine.handed import handed_pieces
from sessionlake.engine.operator import BatchContext, Operator, Piece, ShardResult
from sessionlake.engine.shard import ShardTask
from sessionlake.local.shards import LocalShards
from sessionlake.store.api import OpenSegments

_PARTS = 3
"""In how many parts a shard is handed its state. The harness has few keys, so a part has few, too."""


class DiedError(Exception):
    """A driver that is gone after its tasks have run, before it has committed."""


class Forwarding:
    """What does as another does."""

    def __init__(self, other: Any) -> None:
        self.other = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self.other, name)


class StayingOpen(Forwarding):
    """A store that is closed by nobody but `TaskShards`."""

    def close(self) -> None:
        """Do nothing."""


class Recorded(Forwarding):
    """An operator whose last result is kept; stores are kept open among `stores`, where that is given: to open one takes long."""

    def __init__(self, operator: Operator[Any], stores: dict[str, Any] | None) -> None:
        super().__init__(operator)
        self.stores = stores
        self.result: ShardResult | None = None

    def open_store(self, path: Path, opened: OpenSegments) -> Any:
        if self.stores is None:
            return self.other.open_store(path, opened)
        if path.name not in self.stores:
            self.stores[path.name] = self.other.open_store(path, opened)
        return StayingOpen(self.stores[path.name])

    def apply(self, inputs: Any, store: Any, context: BatchContext) -> ShardResult:
        self.result = self.other.apply(inputs, store, context)
        return self.result


class TaskShards(LocalShards[Any]):
    """Shards whose stores lie in a directory; `stored` returns the rows (key, ...) that the changelog has of all of them.

    Tasks open and close the stores; with `stay_open` these stay open, and nobody else can read them.
    """

    def __init__(
        self, shards: int, directory: Path, stored: Callable[[], pa.Table], *, stay_open: bool = False
    ) -> None:
        super().__init__(shards, lambda *_: None)
        self._open: dict[str, Any] | None = {} if stay_open else None
        self.directory, self._stored = directory, stored
        self.expected: list[str | None] = [None] * shards
        self.commit_id = ""
        self.attempts = 0
        self.dies = False
        """Whether the next attempt dies before its commit."""
        self.results: dict[int, ShardResult] = {}
        """What the last attempt computed."""
        self.unready: set[int] = set()
        """Shards without a store at its commit, since it was lost or the shards were cut anew."""

    def run(self, operator: Operator[Any], split: Sequence[Piece], context: BatchContext, answer: Any = None) -> Any:
        """Run a batch's tasks and commit them; DiedError instead of the commit, where that is asked for."""
        self.attempts += 1
        context = replace(context, commit_id=f"c{self.attempts}")
        cursors = dict(self._cursors)
        out = super().run(operator, split, context, answer)
        if self.dies:
            self.dies, self._cursors = False, cursors
            raise DiedError
        self.commit_id = context.commit_id
        for shard, result in self.results.items():
            if result.writes is not None:
                self.expected[shard] = self.commit_id
        return out

    def cut(self, shards: int) -> None:
        """Go on with another number of shards: no store is at its commit, and cursors are forgotten."""
        self.shards, self.expected = shards, [f"{self.commit_id}/{shards}"] * shards
        self.unready = set(range(shards))
        self._cursors.clear()

    def lose(self, shard: int) -> None:
        """Lose a store, and what waits beside it."""
        if self._open is not None and str(shard) in self._open:
            self._open.pop(str(shard)).close()
        for name in (str(shard), f"{shard}.pending"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        if shard < self.shards and self.expected[shard] is not None:
            self.unready.add(shard)

    def close(self) -> None:
        """Close the stores that stayed open."""
        for store in (self._open or {}).values():
            store.close()

    def _applied(
        self, operator: Operator[Any], inputs: Mapping[int, Mapping[str, pa.Table]], context: BatchContext
    ) -> dict[int, ShardResult]:
        self.results = {shard: self._task(operator, shard, kinds, context) for shard, kinds in sorted(inputs.items())}
        self.unready -= self.results.keys()
        # The tasks have written down what is to be written; nothing is left to do to a store.
        return {shard: replace(result, writes=None) for shard, result in self.results.items()}

    def _task(
        self, operator: Operator[Any], shard: int, kinds: Mapping[str, pa.Table], context: BatchContext
    ) -> ShardResult:
        recorded: Any = Recorded(operator, self._open)
        cursors = tuple(self._cursors.get(n, {}) for n in range(self.shards))
        task = ShardTask(recorded, context, (), str(self.directory), tuple(self.expected), cursors=cursors)
        (report,) = task.run_shard(shard, kinds)
        if report["kind"][0].as_py() == exchange.STALE:
            assert self.expected[shard] is not None, json.loads(report["payload"][0].as_py())
            rows = self._stored()
            restoring = frozenset({shard})
            handed = handed_pieces(rows.combine_chunks().to_batches(), restoring, self.shards, _PARTS)
            own = ((shard, kind, table) for kind, table in kinds.items())
            (report,) = replace(task, restoring=restoring).run(exchange.wire_rows([*own, *handed]))
        assert report["kind"][0].as_py() in (exchange.DONE, exchange.NEEDS)
        return recorded.result
