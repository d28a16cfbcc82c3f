"""Keyed tables as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from sessionlake.aggregates.codec import STATE_LAYOUT
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.keyed.control import KINDS
from sessionlake.operators.keyed.expiry.ttl import hidden_us
from sessionlake.operators.keyed.mapper import split_updates
from sessionlake.operators.keyed.shard import KeyedShard
from sessionlake.operators.keyed.spec import KeyedSpec, Progress, next_state
from sessionlake.operators.keyed.table import table_of
from sessionlake.sources.decoding.rows import Rows, TypedSource
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.rows import RowStore
from sessionlake.stream.control import Limits
from sessionlake.stream.described import Described
from sessionlake.warehouse.row_table import RowTable

if TYPE_CHECKING:
    from sessionlake.config.load import Config
    from sessionlake.stream.pinned import Pinned

_RESTORED_AT_A_TIME = 500_000
"""Rows; to make their writes takes some 700 bytes each. A key has one, so that they may be cut anywhere."""


@dataclass(frozen=True)
class TableKeeper(Described):
    """The latest row of each key, from events and corrections; see `Described` and `engine.operator.Operator` for the methods."""

    TABLES: ClassVar = (table_of(has_offsets=False, has_ids=False),)
    CORRECTIONS: ClassVar = KINDS
    spec: KeyedSpec

    @classmethod
    def of(cls, config: "Config", sources: Mapping[str, TypedSource], pinned: "Pinned | None") -> Self:
        """Make it of a config."""
        from sessionlake.operators.keyed.factory import spec_of  # noqa: PLC0415 (workers do without the config)

        return cls(spec_of(config, sources, pinned))

    @property
    def tables(self) -> tuple[RowTable, ...]:
        """The table of the spec."""
        return (self.spec.table,)

    def scheduled(self, context: BatchContext) -> Split:
        """Yield the rows that make every shard run if a cleanup is due."""
        if self.spec.ttl is not None:
            yield from self.spec.ttl.split(context)

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return the latest update of each key."""
        del name, number
        return split_updates(self.spec, context, rows)

    def limits(self, context: BatchContext) -> Limits:
        """Return the time from which on a deletion may still be remembered, and the watermark that events could reach."""
        at = Progress.of(context.state)
        return Limits(at.expired_us, self.latest_us(context, at.watermark_us, 1), context.clock_us)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> RowStore:
        """Open a shard's store, by default in a separate database."""
        spec = self.spec
        return RowStore(path, retention_us=spec.retention_us, row_interval_us=spec.row_interval_us, opened=opened)

    def apply(self, inputs: Inputs, store: RowStore, context: BatchContext) -> ShardResult:
        """Compute a shard."""
        return KeyedShard(self.spec).computed(inputs, store, context)

    def commit(self, store: RowStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes; markers that nothing can meet any more are dropped, and rows that the last commit hides."""
        store.apply(writes, meta, Progress.of(context.state).horizon_us, hidden_us(context.state))

    def restored(self, rows: pa.Table, store: RowStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of a restore's rows and markers, in pieces."""
        del part
        for first in range(0, len(rows), _RESTORED_AT_A_TIME):
            yield KeyedShard(self.spec).restored(rows.slice(first, _RESTORED_AT_A_TIME), store)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return how far the table is."""
        return next_state(self.spec.retention_us, state, stats)

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the time from which on a deletion may still be remembered."""
        return Progress.of(state).expired_us

    @classmethod
    def expired_in(cls, config: "Config", state: Mapping[str, Any]) -> int:
        """Return the time before which updates are beyond retention."""
        del config
        return Progress.of(state).expired_us

    def layout(self) -> str:
        """Return the retention, which cuts markers into segments, the layout of columns, and that of the index of rows."""
        index = None if self.spec.ttl is None else self.spec.ttl.pattern.layout
        return f"{self.spec.retention_us}/{STATE_LAYOUT}{f'/{index}' if index else ''}"

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return when the next cleanup is due that may find something."""
        return None if self.spec.ttl is None else self.spec.ttl.due_us(state)
