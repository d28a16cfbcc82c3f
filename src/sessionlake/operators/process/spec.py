"""The spec of a processor's pipeline for workers, its state after a batch, and the columns of its tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import StateStat
from sessionlake.errors import ConfigError
from sessionlake.operators.process.api import Context, Processor
from sessionlake.operators.process.changelog import OUTPUTS, STATES
from sessionlake.operators.process.output import OutputColumns
from sessionlake.operators.process.user_class import load_class, made, opened
from sessionlake.stream import ingest
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.positions import counted
from sessionlake.stream.watermark import NO_WATERMARK, advanced, watermark_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import DELETED
from sessionlake.warehouse.schemas import TIME

STATE_ROWS = "process_state"
"""Kind of the rows of the states' changelog that shards put out."""
EVENT_LIMIT, CLOCK_LIMIT, NEXT_CLOCK = "event_timers_us", "clock_timers_us", "next_clock_timer_us"
"""Of an operator's state: event-time timers before the first have fired, clock timers up to the second; the first clock timer that
is pending. Times in microseconds, null for none."""
MAX_CLOCK, MAX_NEXT = (StateStat(name, greatest=True) for name in ("max_clock_timers", "max_next_clock_timer"))
"""Numbers of a batch: the clock up to which timers have fired; the first pending clock timer of a shard, negated."""
_TIMER = pa.struct([("name", pa.string()), ("at", TIME), ("clock", pa.bool_())])
_ENTRY = pa.struct([("store", pa.string()), ("name", pa.string()), ("value", pa.string())])


@dataclass(frozen=True)
class ProcessSpec:
    """A pipeline's processor."""

    events: EventSpec
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

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The columns with their types."""
        return {name: self.events.types[name] for name in self.columns}

    def opened(self) -> tuple[Processor, Context]:
        """Return an object of the class, which is not open yet, and the context to open it with."""
        context = Context({name: str(type_) for name, type_ in self.types.items()}, self.output.types)
        return made(self.path, load_class(self.path, self.directory)), context

    def check_class(self) -> None:
        """Raise ConfigError, with file and line, for a class that can't be loaded or opened, or a column named `time_us`."""
        if "time_us" in self.columns and self.events.columns.time != "time_us":
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


def output_schema(columns: OutputColumns, *, marks: bool) -> pa.Schema:
    """Return the schema of output_changelog, or without its id and the marks of batch and attempt."""
    id_ = schemas.commented("output_id", pa.int64(), "xxhash64(output_key, position, ordinal)")
    return pa.schema(
        [
            schemas.commented("op", pa.string(), "upsert, delete"),
            schemas.commented("output_key", pa.string(), "The key"),
            schemas.commented("output_time", TIME, "Time of the source's row, or of the timer"),
            schemas.commented(
                "position", pa.int64(), "Position of the source's row; of a timer that of the key's last row"
            ),
            schemas.commented("ordinal", pa.int64(), "Number of the row among those sent since that one, from 1"),
            *(schemas.commented(name, type_, f"Column {name}") for name, type_ in columns.arrow.items()),
            schemas.commented("revision", pa.int64(), "batch_id of the batch that sent the row"),
            schemas.commented("emitted_at", TIME, "The clock of that batch"),
            *([id_] if marks else []),
            *(schemas.BATCH_MARKS if marks else []),
        ]
    )


def output_snapshot_schema(columns: OutputColumns) -> pa.Schema:
    """Return the schema of the snapshot of the rows that are sent."""
    gone = {"op", *(field.name for field in schemas.BATCH_MARKS)}
    date = schemas.commented(OUTPUTS.date, pa.date32(), f"UTC date of {OUTPUTS.start}")
    return pa.schema([*(field for field in output_schema(columns, marks=True) if field.name not in gone), date])


_STATE_FIELDS = (
    schemas.commented(STATES.key, pa.string(), "The key"),
    schemas.commented("touched_at", TIME, "Greatest time of a row or event-time timer that the state has seen"),
    schemas.commented("position", pa.int64(), "Position of the last row that the state has seen"),
    schemas.commented("ordinal", pa.int64(), "Rows sent since that one"),
    schemas.commented("entries", pa.list_(_ENTRY), "Entries of the stores; values are JSON"),
    schemas.commented("timers", pa.list_(_TIMER), "Pending timers"),
    schemas.commented("revision", pa.int64(), "batch_id of the state's last change"),
)


def state_schema(*, marks: bool) -> pa.Schema:
    """Return the schema of the states' changelog, or without the marks of batch and attempt."""
    op = schemas.commented("op", pa.string(), "upsert, delete")
    return pa.schema([op, *_STATE_FIELDS, *(schemas.BATCH_MARKS if marks else [])])


def state_snapshot_schema() -> pa.Schema:
    """Return the schema of the states' snapshot."""
    deleted = schemas.commented(DELETED, pa.bool_(), "Whether the key has no state any more")
    part = schemas.commented(STATES.date, pa.int64(), "0: all rows are one part, and files hold ranges of keys")
    return pa.schema([*_STATE_FIELDS, deleted, part])


RESTORED_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("touched_us", pa.int64()),
        ("position", pa.int64()),
        ("ordinal", pa.int64()),
        ("entries", pa.list_(_ENTRY)),
        ("timers", pa.list_(pa.struct([("name", pa.string()), ("at_us", pa.int64()), ("clock", pa.bool_())]))),
    ]
)
"""The columns of each state that a restore reads."""
