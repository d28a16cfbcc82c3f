"""The spec of a processor's pipeline for workers, and its state after a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.column_names import title_of
from sessionlake.columnar.column_types import stored_text
from sessionlake.engine.operator import StateStat
from sessionlake.errors import ConfigError
from sessionlake.operators.process.api import Context, Processor
from sessionlake.operators.process.output import OutputColumns
from sessionlake.operators.process.table import OUTPUTS
from sessionlake.operators.process.user_class import load_class, made, opened
from sessionlake.stream import ingest
from sessionlake.stream.described import OneInputSpec
from sessionlake.stream.positions import counted
from sessionlake.stream.watermark import NO_WATERMARK, advanced, watermark_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.row_table import RowTable

EVENT_LIMIT, CLOCK_LIMIT, NEXT_CLOCK = "event_timers_us", "clock_timers_us", "next_clock_timer_us"
"""Of an operator's state: event-time timers before the first have fired, clock timers up to the second; the first clock timer that
is pending. Times in microseconds, null for none."""
MAX_CLOCK, MAX_NEXT = (StateStat(name, greatest=True) for name in ("max_clock_timers", "max_next_clock_timer"))
"""Numbers of a batch: the clock up to which timers have fired; the first pending clock timer of a shard, negated."""


@dataclass(frozen=True)
class ProcessSpec(OneInputSpec):
    """A pipeline's processor."""

    columns: tuple[str, ...]
    """Those of the source that `process` is given."""
    path: str
    """Import path of the class."""
    output: OutputColumns
    retention_us: int
    grace_us: int = 0
    max_state_bytes: int = 1 << 20
    directory: str | None = None
    """pipeline.code."""

    @property
    def aggregates(self) -> Sequence[Aggregate]:
        """None."""
        return ()

    def fields(self, table: RowTable, texts: Mapping[str, str]) -> list[pa.Field]:
        """Return the declared columns of the rows that are sent; states have no columns of their own."""
        del texts
        sent = self.output.arrow.items() if table is OUTPUTS else ()
        return [schemas.commented(name, type_, f"Column {name}") for name, type_ in sent]

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The columns with their types."""
        return {title_of(name): self.events.types[name] for name in self.columns}

    def opened(self) -> tuple[Processor, Context]:
        """Return an object of the class, which is not open yet, and the context to open it with."""
        context = Context({name: stored_text(type_) for name, type_ in self.types.items()}, self.output.types)
        return made(self.path, load_class(self.path, self.directory)), context

    def check_class(self) -> None:
        """Raise ConfigError, with file and line, for a class that can't be loaded or opened, or a column named `time_us`."""
        if "time_us" in self.types and self.events.columns.time != "time_us":
            raise ConfigError(
                "process.columns: 'time_us' is the row's time for the class; rename the column in the source"
            )
        processor, context = self.opened()
        opened(self.path, processor, context)

    def under(self, live: Mapping[str, Any]) -> "ProcessSpec":
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        names = ("grace_us", "retention_us", "max_state_bytes")
        events = ingest.with_live_settings(self.events, live)
        return replace(self, events=events, **{name: live[name] for name in names})


def expired_us(retention_us: int, state: Mapping[str, Any]) -> int:
    """Return the time strictly before which a row is beyond retention, after the batch that left a state."""
    watermark = watermark_of(state)
    return NO_WATERMARK if watermark == NO_WATERMARK else watermark - retention_us


def event_limit_us(grace_us: int, before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Return the time strictly before which event-time timers are due at the end of a batch: it never goes back."""
    known, watermark = before.get(EVENT_LIMIT), watermark_of(after)
    reached = NO_WATERMARK if watermark == NO_WATERMARK else watermark - grace_us
    return max(reached, NO_WATERMARK if known is None else int(known))


def next_state(spec: ProcessSpec, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
    """Return the state after a batch with these numbers."""
    after = advanced(state, stats)
    limit = event_limit_us(spec.grace_us, state, after)
    first = stats.get(MAX_NEXT)
    return {
        **after,
        **counted(state, stats),
        EVENT_LIMIT: None if limit == NO_WATERMARK else limit,
        CLOCK_LIMIT: stats.get(MAX_CLOCK, state.get(CLOCK_LIMIT)),
        NEXT_CLOCK: None if first is None else -first,
    }
