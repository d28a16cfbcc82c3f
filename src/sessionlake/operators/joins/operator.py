"""Joins as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.joins.axis import axis_of, block_of
from sessionlake.operators.joins.control import kinds_of
from sessionlake.operators.joins.mapper import split_messages
from sessionlake.operators.joins.rules import JoinProgress, next_state
from sessionlake.operators.joins.shard import JoinShard
from sessionlake.operators.joins.spec import POSITION, SIDE, JoinSpec, Side
from sessionlake.operators.joins.table import JOINS
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.operators.shared.windowing import emission
from sessionlake.sources.decoding.rows import Rows, TypedSource
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.messages import MessageStore
from sessionlake.stream.control import Limits, split_corrections
from sessionlake.stream.described import Described
from sessionlake.warehouse import schemas

if TYPE_CHECKING:
    from sessionlake.config.load import Config
    from sessionlake.operators.joins.section import JoinSection
    from sessionlake.stream.pinned import Pinned


@dataclass(frozen=True)
class Joiner(Described):
    """Pairs of messages; see `Described` and `engine.operator.Operator` for the methods."""

    TABLES: ClassVar = (JOINS,)
    NUMBERED: ClassVar = True
    LATE_COLUMNS: ClassVar = (
        schemas.commented(SIDE, pa.string(), "left, right"),
        schemas.commented(POSITION, pa.int64(), "The message's position"),
    )
    spec: JoinSpec

    @classmethod
    def of(cls, config: "Config", sources: Mapping[str, TypedSource], pinned: "Pinned | None") -> Self:
        """Make it of a config."""
        from sessionlake.operators.shared.sides.equality import comparable  # noqa: PLC0415 (workers do without the config)

        section = cast("JoinSection", config.section)
        sides = (_side(config, sources[name], name, pinned) for name in SIDES)
        left, right = comparable(f"{section.AT}.on", section.pairs_on, section.casts_on, *sides)
        lengths = {n: section.on_axis(n, getattr(section, n)) for n in ("size", "advance", "offset", "gap")}
        spec = JoinSpec(
            left,
            right,
            section.pairs_on,
            section.by,
            section.kind,
            **lengths,
            grace_us=section.grace_us,
            retention_us=section.retention_us,
            retention_count=section.retention_count or 0,
            idle_us=section.idle_us,
            outer=section.outer,
            unmatched=section.unmatched,
            emit=section.emit.policies,
        )
        return cls(spec)

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return the messages of a side, and the rows that number them."""
        return split_messages(self.spec, JoinProgress.of(context.state), context, name, number, rows)

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split restates and tombstones."""
        return split_corrections(kinds_of(self.spec, JoinProgress.of(context.state)), self.limits(context), table)

    def limits(self, context: BatchContext) -> Limits:
        """Return the end of the retention, and the watermark that would close a pair from beyond the skew."""
        spec, at = self.spec, JoinProgress.of(context.state).at
        to_close = (axis_of(spec).width if spec.by_time else 0) + spec.grace_us
        return Limits(at.expired_us, self.latest_us(context, at.close_us, to_close), context.clock_us)

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

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return how far both sides are."""
        return next_state(self.spec, state, stats)

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        return JoinProgress.of(state).at.expired_us

    @classmethod
    def expired_in(cls, config: "Config", state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        del config
        return JoinProgress.of(state).at.expired_us

    def layout(self) -> str:
        """Return the lengths that cut messages into segments and blocks, and the policies, which lists depend on."""
        spec = self.spec
        return f"{spec.segment}/{block_of(spec)}/{spec.emit.early}/{spec.emit.late}"

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return when the next period has pairs to make."""
        return emission.due_us(self.spec.emit, state)


def _side(config: "Config", source: TypedSource, name: str, pinned: "Pinned | None") -> Side:
    from sessionlake.stream.events import event_spec  # noqa: PLC0415 (as above)

    section = cast("JoinSection", config.section)
    side = section.sides[name]
    pinned = None if pinned is None else pinned.input(name)
    events = event_spec(config.inputs[name], source, side.columns, pinned, config.keys[name], ordered=True)
    return Side(side.name, section.size_of(name), tuple(side.columns), events)
