"""Joins of tables as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, cast

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.operators.table_joins.control import KINDS
from sessionlake.operators.table_joins.mapper import split_rows
from sessionlake.operators.table_joins.shard import TableJoinShard
from sessionlake.operators.table_joins.spec import TableJoinSpec, TableSide
from sessionlake.operators.table_joins.store import SideStore
from sessionlake.operators.table_joins.table import JOINED, SIDE_ROWS
from sessionlake.sources.decoding.rows import Rows, TypedSource
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.stream.described import Described
from sessionlake.warehouse.schemas import SIDE_FIELD

if TYPE_CHECKING:
    from sessionlake.config.load import Config
    from sessionlake.operators.table_joins.section import TableJoinSection
    from sessionlake.stream.pinned import Pinned


@dataclass(frozen=True)
class TableJoins(Described):
    """Pairs of rows that follow both inputs; see `engine.operator.Operator` for the methods."""

    TABLES: ClassVar = (SIDE_ROWS, JOINED)
    CORRECTIONS: ClassVar = KINDS
    LATE_COLUMNS: ClassVar = (SIDE_FIELD,)
    spec: TableJoinSpec

    @classmethod
    def of(cls, config: "Config", sources: Mapping[str, TypedSource], pinned: "Pinned | None") -> Self:
        """Make it of a config."""
        from sessionlake.operators.shared.sides.equality import comparable  # noqa: PLC0415 (workers do without the config)

        section = cast("TableJoinSection", config.section)
        sides = (_side(config, sources[name], name, pinned) for name in SIDES)
        left, right = comparable(f"{section.AT}.on", section.pairs_on, section.casts_on, *sides)
        return cls(TableJoinSpec(left, right, section.outer))

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return the rows of a side with their keys."""
        del number
        return split_rows(self.spec, context, name, rows)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> SideStore:
        """Open a shard's store, by default in a database of its own."""
        return SideStore(path, opened)

    def apply(self, inputs: Inputs, store: SideStore, context: BatchContext) -> ShardResult:
        """Compute a shard."""
        return TableJoinShard(self.spec).computed(inputs, store, context)

    def commit(self, store: SideStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes."""
        del context
        store.apply(writes, meta)

    def restored(self, rows: pa.Table, store: SideStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of the given rows of both sides."""
        del part
        yield from TableJoinShard(self.spec).restored(rows, store)


def _side(config: "Config", source: TypedSource, name: str, pinned: "Pinned | None") -> TableSide:
    from sessionlake.stream.events import event_spec  # noqa: PLC0415 (as above)

    section = cast("TableJoinSection", config.section)
    side, on = section.sides[name], section.keys[name]
    pinned = None if pinned is None else pinned.input(name)
    events = event_spec(config.inputs[name], source, tuple(dict.fromkeys((*on, *side.columns))), pinned, compared=on)
    return TableSide(side.name, on, tuple(side.columns), events)
