"""Shared by all harnesses: an operator's batches on shards in a directory of their own, and the columns of plain rows."""

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.config.durations import parse_duration
from sessionlake.config.store_engines import FILES, StoreEngine
from sessionlake.engine.operator import Operator
from sessionlake.local.columns import Types, aggregated, declared_types, type_of
from sessionlake.local.rows import Row
from sessionlake.local.shards import KEY, TIME_US, LocalShards
from sessionlake.local.stream import LocalBatch, LocalStream
from sessionlake.local.tables import LocalTables
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.rows import Rows
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.store.engines import opened_by
from sessionlake.stream.control import MAX_ADVANCE, MAX_FLUSH
from sessionlake.stream.ingest import DEAD_LETTER, EventSpec
from sessionlake.stream.shape import Shape
from sessionlake.warehouse.batch_commit import WATERMARK

O_ = TypeVar("O_", bound=Operator[Any])
T_ = TypeVar("T_", bound=LocalTables)


class OperatorHarness(LocalStream[Any], Generic[O_, T_]):
    """An operator, made with the first batch, and its shards, which are closed at the end of a `with`."""

    _tables: T_

    def __init__(
        self,
        tables: T_,
        shards: int,
        *,
        beyond_retention: str = DEAD_LETTER,
        max_future_skew: str | None = None,
        schema: Mapping[str, str] | None = None,
        engine: StoreEngine = FILES,
    ) -> None:
        """Without `max_future_skew` rows may be any time ahead of a batch's clock."""
        self._policy, self._declared = beyond_retention, declared_types(schema)
        self._skew = None if max_future_skew is None else parse_duration(max_future_skew, "max_future_skew")
        root = Path(tempfile.mkdtemp(prefix="sessionlake-"))
        # A harness that refuses its arguments is closed by nobody.
        self._remove = weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
        opened = opened_by(engine)
        super().__init__(
            LocalShards(shards, lambda operator, shard: operator.open_store(root / str(shard), opened)), tables
        )
        self._operator: O_ | None = None

    @property
    def watermark_us(self) -> int | None:
        """The watermark after the last batch; None before the first accepted event."""
        return self._state.get(WATERMARK)

    def lose_stores(self) -> None:
        """Restore every store from the changelog, as after the loss of its disk."""
        if self._operator is not None:
            self.restore(self._operator)

    def close(self) -> None:
        """Release the stores and their directory."""
        super().close()
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make_operator(self, rows: Sequence[Row]) -> O_:
        """Make the operator; columns that `schema` does not declare have the types of the first values in these rows."""
        raise NotImplementedError

    def _build(self, rows: Sequence[Row] = ()) -> O_:
        if self._operator is None:
            self._operator = self._make_operator(rows)
        return self._operator

    def _batch(self, clock_us: int, given: Sequence[tuple[str, Rows]] = (), **more: Any) -> LocalBatch:
        return self.run(self._build(), clock_us, given, **more)

    def _ticked(self, clock_us: int, *, flush: bool) -> LocalBatch:
        return self._batch(clock_us, counted={MAX_FLUSH: 1} if flush else {})

    def _advanced(self, watermark_us: int, clock_us: int) -> LocalBatch:
        return self._batch(clock_us, counted={MAX_ADVANCE: watermark_us})

    def _events(self, columns: EventColumns, shape: Shape | None = None) -> EventSpec:
        """Return an event input with these columns, and what is computed of them."""
        return EventSpec(TableDecoder(columns, None), self._policy, self._skew, shape=shape or Shape())


def placed(tables: Iterable[pa.Table]) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of outputs that name given rows by their places, with these places, ascending."""
    found = [(int(row["source"]), row) for table in tables for row in table.to_pylist()]
    return sorted(found, key=lambda pair: pair[0])


def aggregated_columns(
    texts: Mapping[str, str],
    declared: Mapping[str, pa.DataType],
    rows: Sequence[Row],
    *,
    keyed: bool = True,
    event_id: str | None = None,
    more: Sequence[str] = (),
) -> tuple[tuple[Aggregate, ...], EventColumns, Shape]:
    """Return what `aggregated` returns: the columns, and `more`, are typed as declared, or as the rows' first values are."""
    named = {name for row in rows for name in row} - {KEY, TIME_US, "kind", event_id}
    first = {name: type_of(name, rows) for name in named}
    types: Types = first | dict(declared) | {KEY: pa.string(), TIME_US: pa.int64()}
    key = KEY if keyed else None
    return aggregated(texts, types, key=key, time=TIME_US, event_id=event_id, columns=more, others=sorted(named))
