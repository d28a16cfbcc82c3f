"""Processors as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.process.control import KINDS
from sessionlake.operators.process.mapper import split_rows
from sessionlake.operators.process.output import OutputColumns
from sessionlake.operators.process.shard import ProcessShard
from sessionlake.operators.process.spec import NEXT_CLOCK, ProcessSpec, expired_us, next_state
from sessionlake.operators.process.store import StateStore
from sessionlake.operators.process.table import OUTPUTS, STATES
from sessionlake.sources.decoding.rows import Rows, TypedSource
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.stream.control import Limits, latest_advance_us
from sessionlake.stream.described import Described
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.watermark import watermark_of
from sessionlake.warehouse.changelog import DELETED

if TYPE_CHECKING:
    from sessionlake.config.load import Config
    from sessionlake.operators.process.section import ProcessSection
    from sessionlake.stream.pinned import Pinned


@dataclass(frozen=True)
class Processors(Described):
    """A user's processor on shards; see `engine.operator.Operator` for the methods."""

    TABLES: ClassVar = (STATES, OUTPUTS)
    CORRECTIONS: ClassVar = KINDS
    NUMBERED: ClassVar = True
    UNNEEDED: ClassVar = {STATES.changelog.snapshot: DELETED}
    spec: ProcessSpec

    @classmethod
    def of(cls, config: "Config", sources: Mapping[str, TypedSource], pinned: "Pinned | None") -> Self:
        """Make it of a config. The class is loaded and opened once, so its problems are reported before a batch; ConfigError if it fails."""
        from sessionlake.stream.events import event_spec, every_column  # noqa: PLC0415 (workers do without the config)

        section, source = cast("ProcessSection", config.section), sources[EVENTS]
        paths = tuple(
            section.columns or every_column(config, source, pinned, (*config.event.key_columns, config.event.time))
        )
        spec = ProcessSpec(
            event_spec(config, source, paths, pinned, ordered=True),
            paths,
            section.processor,
            OutputColumns(dict(section.output)),
            section.retention_us,
            section.grace_us,
            section.max_state_bytes,
            config.pipeline.code,
        )
        spec.check_class()
        return cls(spec)

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return the accepted rows, and the numbers of their order."""
        del name
        return split_rows(self.spec, context, number, rows)

    def limits(self, context: BatchContext) -> Limits:
        """Return the times that corrections of a batch are held against."""
        spec, state = self.spec, context.state
        skew, grace = spec.events.max_future_skew_us, spec.grace_us
        latest = latest_advance_us(skew, context.clock_us, watermark_of(state), grace + 1)
        return Limits(expired_us(spec.retention_us, state), latest, context.clock_us)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> StateStore:
        """Open a shard's store, by default in a database of its own."""
        return StateStore(path, opened)

    def apply(self, inputs: Inputs, store: StateStore, context: BatchContext) -> ShardResult:
        """Compute a shard."""
        return ProcessShard(self.spec).computed(inputs, store, context)

    def commit(self, store: StateStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes."""
        del context
        store.apply(writes, meta)

    def restored(self, rows: pa.Table, store: StateStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of the given states."""
        del store, part
        yield from ProcessShard(self.spec).restored(rows)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the progress of the rows and timers."""
        return next_state(self.spec, state, stats)

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        return expired_us(self.spec.retention_us, state)

    def layout(self) -> str:
        """Return the retention, which the index of removals depends on."""
        return f"{self.LAYOUT}/{self.spec.retention_us}"

    @classmethod
    def expired_in(cls, config: "Config", state: Mapping[str, Any]) -> int:
        """Return the time before which rows are beyond retention."""
        return expired_us(config.retention_us, state)

    @classmethod
    def due_us(cls, state: Mapping[str, Any]) -> int | None:
        """Return the time of the first pending clock timer."""
        found = state.get(NEXT_CLOCK)
        return None if found is None else int(found)
