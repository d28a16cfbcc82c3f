"""An operator around another one: each wrapper changes one thing, and leaves the rest to the operator in it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Inputs, Operator, ShardResult, Split
from sessionlake.sources.decoding.rows import Rows
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.stream.event_operator import EventOperator
from sessionlake.stream.ingest import EventSpec


@dataclass(frozen=True)
class Wrapped(EventOperator):
    """Leaves all to the operator in it; see `engine.operator.Operator` for the methods."""

    operator: Operator[Any]

    def events(self, name: str) -> EventSpec:
        """Return the operator's settings of an input."""
        return cast("EventOperator", self.operator).events(name)

    @property
    def ticks(self) -> bool:
        """As the operator has it."""
        return self.operator.ticks

    def laid_out(self, own: str) -> str:
        """Return the settings behind a store's content; `own` are the operator's."""
        return own

    def scheduled(self, context: BatchContext) -> Split:
        """Yield the operator's."""
        return self.operator.scheduled(context)

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Split them as the operator does."""
        return self.operator.split_rows(context, name, number, rows)

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split them as the operator does."""
        return self.operator.split_corrections(context, table)

    def split_sent(self, context: BatchContext, table: pa.Table) -> Split:
        """Split them as the operator does."""
        return self.operator.split_sent(context, table)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> Any:
        """Open the operator's store."""
        return self.operator.open_store(path, opened)

    def apply(self, inputs: Inputs, store: Any, context: BatchContext) -> ShardResult:
        """Compute the shard as the operator does."""
        return self.operator.apply(inputs, store, context)

    def commit(self, store: Any, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply the operator's writes."""
        self.operator.commit(store, writes, meta, context)

    def restored(self, rows: pa.Table, store: Any, part: int) -> Iterator[pa.Table]:
        """Yield the operator's writes."""
        return self.operator.restored(rows, store, part)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the operator's."""
        return self.operator.next_state(state, stats)

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the operator's."""
        return self.operator.expired_us(state)


def inner(operator: Operator[Any]) -> Operator[Any]:
    """Return the operator itself, without what is around it."""
    return inner(operator.operator) if isinstance(operator, Wrapped) else operator


def store_layout(operator: Operator[Any], own: str) -> str:
    """Return the settings behind a store's content; `own` are the operator's own."""
    return operator.laid_out(store_layout(operator.operator, own)) if isinstance(operator, Wrapped) else own
