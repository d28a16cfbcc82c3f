"""An operator's shards without Spark: rows are parted by key, and shards computed and committed one after the other."""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Generic, Self

import pyarrow as pa

from sessionlake.aggregates import Aggregate, AggregateSpec, build_aggregates
from sessionlake.aggregates.custom import Custom
from sessionlake.columnar.arrays import combined
from sessionlake.columnar.keys import by_shard, shard_of
from sessionlake.engine.operator import (
    LOOKUP,
    RESTORE,
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
)
from sessionlake.errors import ConfigError
from sessionlake.sources.columns import EventColumns
from sessionlake.testing.rows import Row, type_of
from sessionlake.warehouse.schemas import COLUMN_TYPES

Answer = Callable[[pa.Table], pa.Table]
"""Returns the rows (key, ...) that answer what shards asked for."""
KEY, TIME_US = "key", "time_us"
"""The columns of an event's key and time."""


class LocalShards(Generic[Store]):
    """The shards of one operator; their stores lie in a directory of their own, which `close` removes."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._directory = tempfile.TemporaryDirectory(prefix="sessionlake-")
        self._stores: dict[int, Store] = {}

    def store(self, operator: Operator[Store], shard: int) -> Store:
        """Return a shard's store."""
        if shard not in self._stores:
            self._stores[shard] = operator.open_store(Path(self._directory.name) / str(shard))
        return self._stores[shard]

    def run(
        self,
        operator: Operator[Store],
        split: Sequence[Piece],
        context: BatchContext,
        answer: Answer = lambda asked: asked,
    ) -> tuple[list[ShardResult], dict[str, int]]:
        """Compute and commit what a batch's map task yields; return the results by shard, and all numbers added up."""
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
            if result.writes is not None:
                operator.commit(self.store(operator, shard), result.writes, {}, context)
        return list(results.values()), stats

    def restore(self, operator: Operator[Store], rows: pa.Table, context: BatchContext) -> None:
        """Empty every store and load handed-in state (key, ...), as after the loss of a disk."""
        parts = self._parted([(RESTORE, rows, combined(rows[KEY]))])
        for shard in range(self.shards):
            store = self.store(operator, shard)
            store.clear()
            if shard in parts:
                operator.commit(store, operator.restored(parts[shard], store), {}, context)

    def close(self) -> None:
        """Release the stores and their directory."""
        for store in self._stores.values():
            store.close()
        self._stores.clear()
        self._directory.cleanup()

    def _inputs(
        self, operator: Operator[Store], split: Sequence[Piece], stats: Mapping[str, int]
    ) -> dict[int, dict[str, pa.Table]]:
        """Return what each shard is given: its own rows, what goes to all, and the tick."""
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
            for shard, _, table in by_shard(kind, rows, shard_of(keys, self.shards)):
                inputs.setdefault(shard, {}).setdefault(kind, []).append(table)
        return {
            shard: {kind: pa.concat_tables(tables) for kind, tables in kinds.items()} for shard, kinds in inputs.items()
        }

    def _applied(
        self, operator: Operator[Store], inputs: Mapping[int, Mapping[str, pa.Table]], context: BatchContext
    ) -> dict[int, ShardResult]:
        return {
            shard: operator.apply(kinds, self.store(operator, shard), context)
            for shard, kinds in sorted(inputs.items())
        }


class Harness(Generic[Store]):
    """What every harness has: shards that are closed at the end of a `with`."""

    def __init__(self, shards: int) -> None:
        self._shards = LocalShards[Store](shards)

    def close(self) -> None:
        """Release the stores and their directory."""
        self._shards.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def declared_types(schema: Mapping[str, str] | None) -> dict[str, pa.DataType]:
    """Return the types that a harness's `schema` declares; ConfigError for an unknown one."""
    for name, type_ in (schema or {}).items():
        if type_ not in COLUMN_TYPES:
            raise ConfigError(f"schema: {name}: {type_!r} is unknown; write {', '.join(COLUMN_TYPES)}")
    return {name: COLUMN_TYPES[type_] for name, type_ in (schema or {}).items()}


def aggregated_columns(
    texts: Mapping[str, str],
    declared: Mapping[str, pa.DataType],
    rows: Sequence[Row],
    *,
    keyed: bool = True,
    event_id: str | None = None,
    more: Sequence[str] = (),
) -> tuple[tuple[Aggregate, ...], EventColumns]:
    """Return aggregates and the columns of events that they read, and `more`, typed as declared, or as the rows' first values are."""
    specs = [AggregateSpec.parse(name, text) for name, text in texts.items()]
    inputs = tuple(dict.fromkeys((*(column for spec in specs for column in spec.inputs), *more)))
    types = {name: declared.get(name) or type_of(name, rows) for name in inputs}
    types |= {KEY: pa.string(), TIME_US: pa.int64()}
    if event_id:
        types.setdefault(event_id, pa.string())
    aggregates = build_aggregates(texts, types, with_id=event_id is not None)
    # A user's class names the columns it reads only once it is loaded; one that names none reads all.
    named = [column for aggregate in aggregates for column in aggregate.inputs]
    if any(isinstance(aggregate, Custom) and not aggregate.inputs for aggregate in aggregates):
        named += [name for row in rows for name in row if name not in (KEY, TIME_US, "kind", event_id)]
    inputs = tuple(dict.fromkeys((*inputs, *named)))
    types |= {name: declared.get(name) or type_of(name, rows) for name in inputs if name not in types}
    return aggregates, EventColumns(KEY if keyed else None, TIME_US, "us", event_id, inputs, types)
