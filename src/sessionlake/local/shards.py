"""An operator's shards without Spark: rows are parted by key, and shards computed and committed one after the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import combined
from sessionlake.columnar.keys import by_shard, shard_of
from sessionlake.engine.handed import RESTORE
from sessionlake.engine.operator import (
    LOOKUP,
    TICK,
    BatchContext,
    Counted,
    Everywhere,
    Keyed,
    Operator,
    Piece,
    ShardResult,
    Store,
    add_stats,
    applied,
)

Answer = Callable[[pa.Table], pa.Table]
"""Returns the rows (key, ...) by a request of shards."""
KEY, TIME_US = "key", "time_us"
"""The columns of an event's key and time."""
_PARTS = 2
"""Parts in which a shard's stored state is loaded: two, so that tests catch an operator that takes a part for the whole."""


class LocalShards(Generic[Store]):
    """An operator's shards; `opened` opens a shard's store by number, on first use."""

    def __init__(self, shards: int, opened: Callable[[Operator[Store], int], Store]) -> None:
        self.shards, self._opened = shards, opened
        self._stores: dict[int, Store] = {}
        self._cursors: dict[int, Mapping[str, Any]] = {}

    def store(self, operator: Operator[Store], shard: int) -> Store:
        """Return a shard's store."""
        if shard not in self._stores:
            self._stores[shard] = self._opened(operator, shard)
        return self._stores[shard]

    def run(
        self,
        operator: Operator[Store],
        split: Sequence[Piece],
        context: BatchContext,
        answer: Answer = lambda asked: asked,
    ) -> tuple[list[ShardResult], dict[str, int]]:
        """Compute and commit the rows of a batch's map task; return results by shard, and the summed statistics."""
        stats: dict[str, int] = {}
        for piece in split:
            if isinstance(piece, Counted):
                add_stats(stats, piece.stats)
        inputs = self._inputs(operator, split, stats)
        results = self._applied(operator, inputs, context)
        needs = [result.needs for result in results.values() if result.needs is not None]
        if needs:
            found = answer(pa.concat_tables(needs))
            for shard, kinds in self._parted([(LOOKUP, found, combined(found[KEY]))]).items():
                inputs[shard].update(kinds)
            results = self._applied(operator, inputs, replace(context, handed_in=True))
        for shard, result in results.items():
            add_stats(stats, result.stats)
            self._cursors[shard] = self._cursors.get(shard, {}) if result.cursor is None else result.cursor
            if result.writes is not None:
                operator.commit(self.store(operator, shard), result.writes, {}, context)
        return list(results.values()), stats

    def restore(self, operator: Operator[Store], rows: pa.Table, context: BatchContext) -> None:
        """Empty every store and load stored state (key, ...) in parts, as after the loss of a disk."""
        for shard in range(self.shards):
            self.store(operator, shard).clear()
        places = shard_of(combined(rows[KEY]), self.shards * _PARTS)
        for place, _, piece in by_shard(RESTORE, rows, places):
            part, shard = divmod(place, self.shards)
            store = self.store(operator, shard)
            for writes in operator.restored(piece, store, part):
                operator.commit(store, writes, {}, context)

    def close(self) -> None:
        """Release the stores."""
        for store in self._stores.values():
            store.close()
        self._stores.clear()

    def _inputs(
        self, operator: Operator[Store], split: Sequence[Piece], stats: Mapping[str, int]
    ) -> dict[int, dict[str, pa.Table]]:
        """Return each shard's inputs: the shard's rows, the rows for all shards, and the tick."""
        inputs = self._parted((piece.kind, piece.rows, piece.keys) for piece in split if isinstance(piece, Keyed))
        for kind in dict.fromkeys(piece.kind for piece in split if isinstance(piece, Everywhere)):
            shared = [piece.rows for piece in split if isinstance(piece, Everywhere) and piece.kind == kind]
            for shard in range(self.shards):
                inputs.setdefault(shard, {})[kind] = pa.concat_tables(shared)
        if operator.ticks:
            told = pa.table({name: pa.array([value]) for name, value in {**stats, "task": 0}.items()})
            for shard in range(self.shards):
                inputs.setdefault(shard, {})[TICK] = told
        return inputs

    def _parted(self, pieces: Iterable[tuple[str, pa.Table, pa.Array]]) -> dict[int, dict[str, pa.Table]]:
        """Return rows by shard and kind."""
        inputs: dict[int, dict[str, list[pa.Table]]] = {}
        for kind, rows, keys in pieces:
            # One shard has all keys: there is nothing to hash.
            shards = np.zeros(len(rows), np.int64) if self.shards == 1 else shard_of(keys, self.shards)
            for shard, _, table in by_shard(kind, rows, shards):
                inputs.setdefault(shard, {}).setdefault(kind, []).append(table)
        return {
            shard: {kind: pa.concat_tables(tables) for kind, tables in kinds.items()} for shard, kinds in inputs.items()
        }

    def _applied(
        self, operator: Operator[Store], inputs: Mapping[int, Mapping[str, pa.Table]], context: BatchContext
    ) -> dict[int, ShardResult]:
        return {
            shard: applied(
                operator, kinds, self.store(operator, shard), replace(context, cursor=self._cursors.get(shard, {}))
            )
            for shard, kinds in sorted(inputs.items())
        }
