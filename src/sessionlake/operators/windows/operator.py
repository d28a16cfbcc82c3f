"""Windows by time as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.codec import STATE_LAYOUT
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.shared.windowing import emission
from sessionlake.operators.shared.windowing.emission import Progress
from sessionlake.operators.shared.windowing.tombstones import ASKED_SCHEMA, REMOVE
from sessionlake.operators.windows.control import kinds_of
from sessionlake.operators.windows.mapper import split_events
from sessionlake.operators.windows.replace import REPLACED
from sessionlake.operators.windows.shard import WindowShard
from sessionlake.operators.windows.spec import WindowSpec, tables_in
from sessionlake.operators.windows.table import tables_of
from sessionlake.sources.decoding.rows import Rows, TypedSource
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.slices import GRID, SLIDING, SliceStore
from sessionlake.stream.control import CorrectionKind, Limits
from sessionlake.stream.described import Described
from sessionlake.stream.ingest import EVENTS
from sessionlake.warehouse import schemas
from sessionlake.warehouse.row_table import RowTable

if TYPE_CHECKING:
    from sessionlake.config.load import Config
    from sessionlake.operators.windows.section import WindowSection
    from sessionlake.stream.pinned import Pinned


@dataclass(frozen=True)
class Windower(Described):
    """Windows from events; see `Described` and `engine.operator.Operator` for the methods."""

    TABLES: ClassVar = tables_of(is_sliding=False, rows_are_state=False)
    BOUND: ClassVar = {"state layout": STATE_LAYOUT}
    ASKS: ClassVar = True
    LATE_COLUMNS: ClassVar = (
        schemas.commented(schemas.PARTLY, pa.bool_(), "Whether the event is in those of its windows that were open"),
    )
    spec: WindowSpec

    @classmethod
    def of(cls, config: "Config", sources: Mapping[str, TypedSource], pinned: "Pinned | None") -> Self:
        """Make it of a config."""
        from sessionlake.stream.events import aggregated_events  # noqa: PLC0415 (workers do without the config)

        section = cast("WindowSection", config.section)
        aggregates, events = aggregated_events(config, sources[EVENTS], pinned)
        times = (section.grace_us, section.retention_us, section.retention_count)
        return cls(WindowSpec(events, aggregates, section.windows, section.emit.policies, *times))

    @classmethod
    def tables_in(cls, config: "Config") -> tuple[RowTable, ...]:
        """Return the tables by the config's section."""
        section = cast("WindowSection", config.section)
        return tables_in(section.windows, section.emit.policies)

    @property
    def tables(self) -> tuple[RowTable, ...]:
        """The tables of the spec."""
        return self.spec.tables

    @property
    def corrections(self) -> Mapping[str, CorrectionKind]:
        """Restates, replacements and tombstones."""
        return kinds_of(self.spec)

    @property
    def ticks(self) -> bool:
        """Whether shards need the frontier, or run without rows: some policy lets changes wait to be sent."""
        return not self.spec.emit.updates

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Merge events to parts of slices."""
        del name, number
        return split_events(self.spec, Progress.of(context.state), context.clock_us, rows)

    def limits(self, context: BatchContext) -> Limits:
        """Return the end of the retention, and the watermark that would close a window from beyond the skew."""
        spec, at = self.spec, Progress.of(context.state)
        to_close = spec.windows.span_us + spec.grace_us
        return Limits(at.expired_us, self.latest_us(context, at.close_us, to_close), context.clock_us)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> SliceStore:
        """Open a shard's store, by default in a separate database."""
        windows = self.spec.windows
        return SliceStore(
            path,
            block_us=windows.block_us,
            bucket_us=windows.span_us,
            retention_us=self.spec.retention_us,
            head=SLIDING if self.spec.is_sliding else GRID,
            opened=opened,
        )

    def apply(self, inputs: Inputs, store: SliceStore, context: BatchContext) -> ShardResult:
        """Compute a shard, and delete the rows that tombstones name.

        It asks for these rows as they were sent, and for the windows that replacements name and that the store has dropped.
        """
        needs = ASKED_SCHEMA.empty_table() if context.handed_in else self._needs(inputs, context)
        if len(needs):
            return ShardResult(self.spec.output_schema(self.tables[-1]).empty_table(), None, needs=needs)
        return WindowShard(self.spec).computed(inputs, store, context)

    def _needs(self, inputs: Inputs, context: BatchContext) -> pa.Table:
        below = self.restored_from_us(context.state)
        asked = [ASKED_SCHEMA.empty_table()]
        if REMOVE in inputs:
            asked.append(inputs[REMOVE].select(ASKED_SCHEMA.names).cast(ASKED_SCHEMA))
        if REPLACED in inputs:
            cold = inputs[REPLACED].filter(pc.field("start_us") < below)
            asked.append(cold.select(ASKED_SCHEMA.names).cast(ASKED_SCHEMA))
        return pa.concat_tables(asked)

    def commit(self, store: SliceStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes; segments below the horizon are dropped."""
        store.apply(writes, meta, self.restored_from_us(context.state))

    def restored(self, rows: pa.Table, store: SliceStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of handed-in slices."""
        yield WindowShard(self.spec).restored(rows, store, part)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return how far the windows are."""
        return self.spec.next_progress(Progress.of(state), stats).state()

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        return Progress.of(state).expired_us

    @classmethod
    def expired_in(cls, config: "Config", state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        del config
        return Progress.of(state).expired_us

    def restored_from_us(self, state: Mapping[str, Any]) -> int:
        """Return the horizon: no slice before it is needed."""
        return Progress.of(state).horizon_us(self.spec.windows.span_us)

    def layout(self) -> str:
        """Return the retention, which cuts slices into segments, and the policies, which lists depend on."""
        spec = self.spec
        return f"{spec.retention_us}/{spec.emit.early}/{spec.emit.full}/{spec.emit.late}"

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return when the next period has something to send."""
        return emission.due_us(self.spec.emit, state)
