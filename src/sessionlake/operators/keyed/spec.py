"""A keyed table: its specification for workers, its progress, and the columns of its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates import Aggregate
from sessionlake.aggregates.base import Events
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.scalars import from_state, state_type, to_state
from sessionlake.columnar.arrays import Bools, combined
from sessionlake.columnar.expressions import Expression
from sessionlake.engine.operator import BatchContext, StateStat
from sessionlake.operators.keyed.expiry.ttl import Ttl, hidden_us, next_cleaning
from sessionlake.operators.keyed.table import table_of
from sessionlake.sources.record_columns import NO_VALUE, OFFSET
from sessionlake.stream import ingest
from sessionlake.stream.described import OneInputSpec
from sessionlake.stream.watermark import NO_WATERMARK, advanced, watermark_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.row_table import RowTable

KEY, EVENT_TIME = "key", "event_time"
"""The names of the key and of the time in expressions."""
HORIZON, LAST_DELETE = "horizon_us", "last_delete_us"
MAX_DELETED = StateStat("max_deleted", greatest=True)
"""The number of a batch that is the greatest time of a row or an update by which a key was deleted."""
TOMBSTONE = "tombstone"
"""The cause of a change that is a correction; that of an event is `warehouse.changelog.UPDATE`."""


@dataclass(frozen=True)
class Progress:
    """How far a table is after a batch, times in microseconds."""

    watermark_us: int
    horizon_us: int
    """The watermark less the retention, at its greatest: deletions of before it are forgotten."""
    last_delete_us: int
    """The greatest time of a deletion."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Progress":
        """Return that of a state."""
        horizon, last = (state.get(name) for name in (HORIZON, LAST_DELETE))
        return cls(
            watermark_of(state),
            NO_WATERMARK if horizon is None else int(horizon),
            NO_WATERMARK if last is None else int(last),
        )

    @property
    def expired_us(self) -> int:
        """The time strictly before which an update is refused: a deletion that would be newer may have been forgotten."""
        return min(self.horizon_us, self.last_delete_us + 1)


def next_state(retention_us: int, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
    """Return the state after a batch with these numbers. Once dropped rows stay dropped if the retention gets longer."""
    before, after = Progress.of(state), advanced(state, stats)
    watermark = watermark_of(after)
    horizon = before.horizon_us if watermark == NO_WATERMARK else max(before.horizon_us, watermark - retention_us)
    deleted = max(before.last_delete_us, stats.get(MAX_DELETED, NO_WATERMARK))
    told = {HORIZON: horizon, LAST_DELETE: deleted}
    cleaning = next_cleaning(state, stats)
    return {**after, **cleaning, **{name: None if us == NO_WATERMARK else us for name, us in told.items()}}


@dataclass(frozen=True)
class KeyedSpec(OneInputSpec):
    """A pipeline's keyed table."""

    columns: tuple[str, ...]
    """The columns of a row."""
    retention_us: int
    by_offset: bool = False
    """Whether the greatest offset holds, and not the greatest time."""
    delete_when: Expression | None = None
    """True for events that delete their key. It may read KEY and EVENT_TIME if the source has no columns of these names."""
    ttl: Ttl | None = None
    """When rows expire; None for never."""
    unsaid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """If updates may lack values that the row before has: by column the source's columns that it is computed of, or is; else empty."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """The events' columns behind columns that are called otherwise there (rule 460)."""
    not_one: str | None = None
    """The error if a key has two rows in the table that is followed; None if rows are not taken back, and so are not counted."""

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The columns with their types."""
        return dict(zip(self.columns, map(self.events.types.__getitem__, self.read), strict=True))

    @property
    def read(self) -> list[str]:
        """The events' columns behind `columns`."""
        return [self.paths.get(name, name) for name in self.columns]

    @property
    def aggregates(self) -> Sequence[Aggregate]:
        """Empty."""
        return ()

    @property
    def suite_values(self) -> dict[str, int | bool]:
        """Whether deletions are remembered."""
        return {"by_offset": self.by_offset}

    @property
    def table(self) -> RowTable:
        """The table of rows."""
        return table_of(has_offsets=self.has_offsets, has_ids=self.has_ids)

    def fields(self, table: RowTable, texts: Mapping[str, str]) -> list[pa.Field]:
        """Return the columns of a row."""
        del table, texts
        return [schemas.commented(name, type_, name) for name, type_ in self.types.items()]

    @property
    def types_in_sql(self) -> dict[str, pa.DataType]:
        """The columns that SQL over a row sees besides its key and time."""
        return {**dict.fromkeys(self.events.columns.key_titles, pa.string()), **self.types}

    def key_parts(self, keys: pa.Array) -> dict[str, pa.Array]:
        """Return the columns that keys were made of, if those are several."""
        return self.events.columns.key_parts(keys)

    @property
    def has_offsets(self) -> bool:
        """Whether events have offsets, which order events of equal times."""
        return OFFSET in self.events.columns.inputs

    @property
    def has_ids(self) -> bool:
        """Whether ids order events of equal times."""
        return self.events.columns.id is not None and not self.has_offsets

    @property
    def index(self) -> int | None:
        """The store's index of rows; None for none."""
        return None if self.ttl is None else self.ttl.pattern.index

    @property
    def row_interval_us(self) -> int | None:
        """How long a segment of rows is written to; None if all rows are in one."""
        return None if self.ttl is None else self.ttl.pattern.interval_us

    def hidden_us(self, context: BatchContext) -> int:
        """Return the time at which or before it rows were written that are absent in a batch; NO_WATERMARK for none."""
        return hidden_us(context.state) if self.ttl is None else self.ttl.hidden_us(context)

    def deleted(self, events: Events) -> Bools:
        """Return which events delete their key: those whose Kafka record has no value, and those for which `delete_when` is true."""
        n = len(events.keys)
        empty = events.columns.get(NO_VALUE)
        gone = np.zeros(n, bool) if empty is None else _true(combined(empty))
        if self.delete_when is not None:
            own = {KEY: events.keys, EVENT_TIME: pa.array(events.time_us).cast(schemas.TIME)}
            gone |= _true(self.delete_when.evaluate({**own, **events.columns}, n))
        return gone

    def pack(self, columns: list[pa.Array], rows: int) -> pa.Array:
        """Return a row's columns as one byte string for each row."""
        return self._codec.encode([to_state(column) for column in columns], rows)

    def unpack(self, packed: pa.Array) -> list[pa.Array]:
        """Invert `pack`."""
        return [from_state(c, t) for c, t in zip(self._codec.decode(packed), self.types.values(), strict=True)]

    @property
    def _codec(self) -> StateCodec:
        return StateCodec((), [state_type(type_, name) for name, type_ in self.types.items()])

    def under(self, live: Mapping[str, Any]) -> "KeyedSpec":
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        return replace(self, events=ingest.with_live_settings(self.events, live), retention_us=live["retention_us"])


def _true(values: pa.Array) -> Bools:
    return pc.fill_null(values, fill_value=False).to_numpy(zero_copy_only=False).copy()


def stored_schema(spec: KeyedSpec) -> pa.Schema:
    """Return the schema of a restore's rows and markers: columns as column_<i>, null for markers."""
    return pa.schema(
        [
            ("key", pa.string()),
            *(
                (name, pa.int64())
                for name in ("time_us", "offset", "partition", "revision", "written_us", "inserted_us")
            ),
            ("id", pa.string()),
            ("deleted", pa.bool_()),
            *((f"column_{i}", type_) for i, type_ in enumerate(spec.types.values())),
        ]
    )
