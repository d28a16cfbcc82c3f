"""Joins as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.joins.axis import axis_of, block_of
from sessionlake.operators.joins.control import kinds_of
from sessionlake.operators.joins.mapper import split_messages
from sessionlake.operators.joins.rules import JoinProgress, next_state
from sessionlake.operators.joins.shard import JoinShard
from sessionlake.operators.joins.spec import JoinSpec
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.sources.decoding.rows import Rows
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.messages import MessageStore
from sessionlake.stream.control import Limits, latest_advance_us, split_corrections
from sessionlake.stream.event_operator import EventOperator
from sessionlake.stream.ingest import EventSpec


@dataclass(frozen=True)
class Joiner(EventOperator):
    """Pairs of messages; see `engine.operator.Operator` for the methods."""

    spec: JoinSpec

    @property
    def ticks(self) -> bool:
        """Return False: every shard gets the numbers of all messages for their positions, and so runs in each batch all the same."""
        return True

    def events(self, name: str) -> EventSpec:
        """Return the settings of a side."""
        return self.spec.side(name).events

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return the messages of a side, and the rows that number them."""
        return split_messages(self.spec, JoinProgress.of(context.state), context, name, number, rows)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> MessageStore:
        """Open a shard's store, by default in a separate database."""
        return MessageStore(path, block=block_of(self.spec), segment=self.spec.segment, opened=opened)

    def apply(self, inputs: Inputs, store: MessageStore, context: BatchContext) -> ShardResult:
        """Compute a shard."""
        return JoinShard(self.spec).computed(inputs, store, context)

    def commit(self, store: MessageStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes; segments that are below both sides' horizons are dropped."""
        at = JoinProgress.of(context.state)
        store.apply(writes, meta, min(at.horizon(side) for side in SIDES))

    def restored(self, rows: pa.Table, store: MessageStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of handed-in messages."""
        yield JoinShard(self.spec).restored(rows, store, part)

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split restates and tombstones."""
        at = JoinProgress.of(context.state)
        skew = min(
            (
                s.events.max_future_skew_us
                for s in (self.spec.left, self.spec.right)
                if s.events.max_future_skew_us is not None
            ),
            default=None,
        )
        to_close = (axis_of(self.spec).width if self.spec.by_time else 0) + self.spec.grace_us
        latest = latest_advance_us(skew, context.clock_us, at.at.close_us, to_close)
        limits = Limits(at.at.expired_us, latest, context.clock_us)
        return split_corrections(kinds_of(self.spec, at), limits, table)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return how far both sides are."""
        return next_state(self.spec, state, stats)

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        return JoinProgress.of(state).at.expired_us
