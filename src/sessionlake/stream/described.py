"""Base of operators declared by their tables and settings: the part for workers, without Spark.

`described_kind` has the part for the driver. By default no row is too old, and no batch is due at a later time.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.engine.operator import BatchContext, ShardResult, Split
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.stream import ingest
from sessionlake.stream.control import CorrectionKind, Limits, latest_advance_us, split_corrections
from sessionlake.stream.event_operator import EventOperator
from sessionlake.stream.ingest import EVENTS, EventSpec
from sessionlake.stream.watermark import NO_WATERMARK, advanced, watermark_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.latest_rows import LatestRows, Row, plain_rows
from sessionlake.warehouse.row_table import RowTable

if TYPE_CHECKING:  # workers do without the config
    from sessionlake.config.load import Config
    from sessionlake.stream.pinned import Pinned


SENT_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("start_us", pa.int64()),
        ("end_us", pa.int64()),
        ("revision", pa.int64()),
        ("trigger", pa.string()),
    ]
)
"""Rows as they were sent last, of operators whose shards ask for them. Start and end are as the table has them, times as microseconds."""


class DescribedSpec(Protocol):
    """The settings of an operator, as workers get them."""

    @property
    def inputs(self) -> Mapping[str, EventSpec]:
        """The event inputs by name."""

    @property
    def aggregates(self) -> Sequence[Aggregate]:
        """The aggregates with stored states; empty if the operator has none."""

    @property
    def event_types(self) -> Mapping[str, pa.DataType]:
        """The columns read from events, as the archive has them."""

    @property
    def suite_values(self) -> Mapping[str, int | bool]:
        """Parameters for the pipeline's quality suites."""

    def fields(self, table: RowTable, texts: Mapping[str, str]) -> list[pa.Field]:
        """Return the columns of a table from the config; `texts` maps an aggregate's name to its text."""

    def under(self, live: Mapping[str, Any]) -> Self:
        """Return the spec under other settings of classification (`Config.live_settings`)."""


@dataclass(frozen=True)
class OneInputSpec:
    """The part of a `DescribedSpec` that has one event input."""

    events: EventSpec

    @property
    def inputs(self) -> Mapping[str, EventSpec]:
        """The single input, named EVENTS."""
        return {EVENTS: self.events}

    @property
    def event_types(self) -> Mapping[str, pa.DataType]:
        """The columns besides key, time and id."""
        return self.events.stored_types

    @property
    def suite_values(self) -> Mapping[str, int | bool]:
        """Empty: no parameters."""
        return {}

    def under(self, live: Mapping[str, Any]) -> Self:
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        return replace(self, events=ingest.with_live_settings(self.events, live))


@dataclass(frozen=True)
class AggregatedSpec(OneInputSpec):
    """The part of a `DescribedSpec` with one event input whose tables have aggregates at VALUES."""

    aggregates: tuple[Aggregate, ...]

    def fields(self, table: RowTable, texts: Mapping[str, str]) -> list[pa.Field]:
        """Return the aggregates' columns; `texts` maps a name to the aggregate's text."""
        del table
        return [schemas.commented(a.name, a.value_type, texts.get(a.name, a.name)) for a in self.aggregates]

    def output_schema(self, table: RowTable) -> pa.Schema:
        """Return the schema of a table's changes among the outputs of a shard."""
        return table.changes_schema(self.fields(table, {}), marks=False)

    def named(self, values: Iterable[pa.Array]) -> dict[str, pa.Array]:
        """Return the aggregates' values by name."""
        return {aggregate.name: column for aggregate, column in zip(self.aggregates, values, strict=True)}


@dataclass(frozen=True)
class Described(EventOperator):
    """Base of operators declared by class variables; `engine.operator.Operator` documents the other methods."""

    TABLES: ClassVar[tuple[RowTable, ...]]
    """Tables in the order of their commits. Stores are restored from the first; the last has the results. With several, changes of the
    first come as a side output."""
    CORRECTIONS: ClassVar[Mapping[str, CorrectionKind]]
    """The known corrections, by kind."""
    LAYOUT: ClassVar[str] = "1"
    """Version of the records in stores; if it changes, stores are restored."""
    ASKS: ClassVar[bool] = False
    """Whether shards ask for rows as they were sent last, by key and start."""
    NUMBERED: ClassVar[bool] = False
    """Whether accepted rows are numbered in the order of their source (`stream/positions.py`)."""
    UNNEEDED: ClassVar[Mapping[str, str]] = {}
    """By table name an SQL condition for rows no result needs any more."""
    BOUND: ClassVar[Mapping[str, Any]] = {}
    """Settings fixed when the tables are made, besides the config's. If a value changes, the tables must be rebuilt."""
    LATE_COLUMNS: ClassVar[tuple[pa.Field, ...]] = ()
    """Further columns in the table of late events."""
    spec: Any

    @property
    def ticks(self) -> bool:
        """Whether every shard runs in every batch: if rows are numbered."""
        return self.NUMBERED

    @classmethod
    @abstractmethod
    def of(cls, config: "Config", sources: Mapping[str, TypedSource], pinned: "Pinned | None") -> Self:
        """Make it of a config and its sources; `pinned` is what its batches have fixed, None before the first one."""

    @classmethod
    def tables_in(cls, config: "Config") -> tuple[RowTable, ...]:
        """Return the tables of a pipeline known by its config alone."""
        del config
        return cls.TABLES

    @property
    def tables(self) -> tuple[RowTable, ...]:
        """The tables under this spec; TABLES unless they depend on it."""
        return self.TABLES

    @property
    def corrections(self) -> Mapping[str, CorrectionKind]:
        """The known corrections under this spec; CORRECTIONS unless they depend on it."""
        return self.CORRECTIONS

    @classmethod
    def in_memory(cls, config: "Config") -> "LatestTables":
        """Return the tables in memory, for runs without Spark."""
        return LatestTables(cls.tables_in(config), shown=cls.ASKS)

    def events(self, name: str) -> EventSpec:
        """Return the settings of an event input."""
        found: EventSpec = self.spec.inputs[name]
        return found

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split corrections."""
        return split_corrections(self.corrections, self.limits(context), table)

    def limits(self, context: BatchContext) -> Limits:
        """Return the limits for corrections in a batch: rows have any age."""
        return Limits(NO_WATERMARK, self.latest_us(context, watermark_of(context.state), 1), context.clock_us)

    def latest_us(self, context: BatchContext, closed_us: int, to_close_us: int) -> int | None:
        """Return the latest watermark that a correction may ask for, by the smallest skew of the inputs; see `latest_advance_us`."""
        skews = [events.max_future_skew_us for events in self.spec.inputs.values()]
        skew = min((skew for skew in skews if skew is not None), default=None)
        return latest_advance_us(skew, context.clock_us, closed_us, to_close_us)

    def layout(self) -> str:
        """Return LAYOUT, and the settings that stored records depend on."""
        return self.LAYOUT

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return the clock time at which a batch must run even without input; None if there is none."""
        del state
        return None

    def restored_from_us(self, state: Mapping[str, Any]) -> int | None:
        """Return the time before which rows of the first table begin that restore no store; None if all rows do."""
        del state
        return None

    @classmethod
    def expired_in(cls, config: "Config", state: Mapping[str, Any]) -> int:
        """Return the time before which events can't be restated.

        There is no limit without `unique_for`. With it the limit is the watermark less the longest `unique_for`: earlier ids are
        forgotten.
        """
        asked = [side.event.unique_us for side in config.inputs.values()]
        longest = max((unique_us for unique_us in asked if unique_us is not None), default=None)
        return NO_WATERMARK if longest is None else watermark_of(state) - longest

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the new watermark, with several inputs the least. It closes no result."""
        return advanced(state, stats, tuple(self.spec.inputs))

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return NO_WATERMARK: no event is too old."""
        del state
        return NO_WATERMARK


class LatestTables:
    """The rows in memory from which stores are restored; see `local.tables.LocalTables` for the methods."""

    def __init__(self, tables: Sequence[RowTable], *, shown: bool = False) -> None:
        self._first, self._last, self._shown = tables[0], tables[-1], shown
        self.rows = LatestRows(*self._first.changelog.identity)
        """The latest rows of the first table by identity."""
        self.sent = LatestRows(*self._last.changelog.identity)
        """If they are `shown`, the latest results by identity, without states."""

    def add(self, results: Sequence[ShardResult]) -> list[Row]:
        """Take a batch's changes; return the changes of the results, without states."""
        shown = list[Row]()
        for result in results:
            changes, state = result.changes, result.side.get(self._first.output)
            if self._first is self._last:
                state = changes
            if state is not None:
                self.rows.add(state)
            changes = changes.select(self._last.changelog.without_states(changes.column_names))
            shown += self.sent.add(changes) if self._shown else plain_rows(changes)
        return shown

    def state(self) -> dict[tuple[Any, ...], Row]:
        """Return the rows that restore stores by identity, with a restore's names."""
        names = {str(column.restored_as): column.name for column in self._first.restored}
        return {place: {name: row[column] for name, column in names.items()} for place, row in self.rows.items()}

    def stored(self, operator: Described, state: Mapping[str, Any]) -> pa.Table:
        """Return the rows from which stores are restored."""
        from_us, start = operator.restored_from_us(state), self._first.changelog.start
        rows = [row for at, row in self.state().items() if from_us is None or self.rows[at][start] >= from_us]
        return pa.Table.from_pylist(rows, schema=self._first.restored_schema())

    def lookups(self, operator: Described, state: Mapping[str, Any], asked: pa.Table) -> pa.Table:
        """Return the results that shards ask for, as they were sent last (SENT_SCHEMA)."""
        del operator, state
        of = self._last.changelog
        names = (of.key, of.start, of.end, "revision", "trigger")
        named = (self.sent.get((row["key"], row["start_us"])) for row in asked.to_pylist())
        sent = [[row[name] for name in names] for row in named if row is not None]
        return pa.Table.from_pylist(
            [dict(zip(SENT_SCHEMA.names, row, strict=True)) for row in sent], schema=SENT_SCHEMA
        )
