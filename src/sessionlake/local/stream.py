"""An operator's batches in this process: rows and corrections in, outputs and the next state out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.engine.operator import Aside, BatchContext, Counted, Operator, Piece, ShardResult, Store
from sessionlake.local.shards import KEY, TIME_US, LocalShards
from sessionlake.local.tables import LocalTables
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.unique import ID_HASH, ID_TIME, IDS, remembered_us
from sessionlake.stream.watermark import watermark_of
from sessionlake.stream.wrapped import inner


@dataclass(frozen=True)
class LocalBatch:
    """The outcome of one batch."""

    changes: Sequence[Mapping[str, Any]]
    """The rows of the changelog as `LocalTables.add` returns them; none without tables."""

    pieces: Sequence[Sequence[Piece]]
    """The outcome for each of the given `Rows`; the last two belong to the schedule and to corrections."""
    results: Sequence[ShardResult]
    stats: dict[str, int]

    def asides(self, kind: str) -> list[pa.Table]:
        """Return an output's rows from map tasks."""
        return [p.rows for some in self.pieces for p in some if isinstance(p, Aside) and p.kind == kind]

    def tables(self, kind: str) -> list[pa.Table]:
        """Return an output's rows: from map tasks, then from shards."""
        return self.asides(kind) + [result.side[kind] for result in self.results if kind in result.side]


class LocalStream(Generic[Store]):
    """An operator's shards, and the state from batch to batch. The operator may change between batches, as after a change of settings."""

    def __init__(
        self,
        shards: LocalShards[Store],
        tables: LocalTables | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        batches: int = 0,
    ) -> None:
        """Without `tables` no batch may ask for stored rows, and no store be restored."""
        self._shards, self._tables = shards, tables
        self._state: dict[str, Any] = dict(state or {})
        self._batches = batches
        self._ids: list[pa.Table] = []
        """The accepted identities, from which stores are restored; none without tables."""

    @property
    def state(self) -> dict[str, Any]:
        """The operator's state after the last batch."""
        return self._state

    @property
    def batches(self) -> int:
        """The number of batches so far."""
        return self._batches

    def run(
        self,
        operator: Operator[Store],
        clock_us: int,
        given: Sequence[tuple[str, Rows]] = (),
        *,
        corrections: pa.Table | None = None,
        counted: Mapping[str, int] | None = None,
    ) -> LocalBatch:
        """Run one batch over decoded rows, each with an input's name, rows of the corrections table, and more statistics.

        If the operator raises an error, state and stores stay as they were.
        """
        context = BatchContext(self._batches, f"c{self._batches}", dict(self._state), clock_us)
        pieces = [list(operator.split_read(context, name, number, rows)) for number, (name, rows) in enumerate(given)]
        pieces.append([*operator.scheduled(context), Counted(counted or {})])
        if corrections is not None:
            pieces[-1] += operator.split_corrections(context, corrections)

        def answer(asked: pa.Table) -> pa.Table:
            return asked if self._tables is None else self._tables.lookups(inner(operator), context.state, asked)

        results, stats = self._shards.run(operator, [p for some in pieces for p in some], context, answer)
        self._state = operator.next_state(self._state, stats)
        self._batches += 1
        changes = []
        if self._tables is not None:
            changes = self._tables.add(results)
            self._ids += [result.side[IDS] for result in results if IDS in result.side]
        return LocalBatch(changes, pieces, results, stats)

    def restore(self, operator: Operator[Store]) -> None:
        """Restore every store from the tables, as after a lost disk."""
        assert self._tables is not None  # noqa: S101 (see `__init__`)
        context = BatchContext(self._batches, "", dict(self._state))
        stored = self._tables.stored(inner(operator), self._state)
        remembered = remembered_us(operator)
        if remembered is not None and self._ids:
            ids = pa.concat_tables(self._ids).select([KEY, TIME_US, ID_HASH]).rename_columns([KEY, ID_TIME, ID_HASH])
            oldest = watermark_of(self._state) - remembered
            ids = ids.filter(pc.greater_equal(ids[ID_TIME], oldest))
            stored = pa.concat_tables([stored, ids], promote_options="default")
        self._shards.restore(operator, stored, context)

    def stores(self, operator: Operator[Store]) -> list[Store]:
        """Return all shards' stores."""
        return [self._shards.store(operator, shard) for shard in range(self._shards.shards)]

    def close(self) -> None:
        """Release the stores."""
        self._shards.close()
