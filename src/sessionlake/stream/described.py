"""Base of operators declared by their tables and settings: the part for workers, without Spark.

`described_kind` has the part for the driver. By default no row is too old, and no batch is due at a later time.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
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
from sessionlake.warehouse.latest_rows import LatestRows, Row, plain_rows
from sessionlake.warehouse.row_table import RowTable

if TYPE_CHECKING:  # workers do without the config
    from sessionlake.config.load import Config
    from sessionlake.stream.pinned import Pinned


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
class Described(EventOperator):
    """Base of operators declared by class variables; `engine.operator.Operator` documents the other methods."""

    TABLES: ClassVar[tuple[RowTable, ...]]
    """Tables in the order of their commits. Stores are restored from the first; the last has the results. With several, changes of the
    first come as a side output."""
    CORRECTIONS: ClassVar[Mapping[str, CorrectionKind]]
    """The known corrections, by kind."""
    LAYOUT: ClassVar[str] = "1"
    """Version of the records in stores; if it changes, stores are restored."""
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
    def in_memory(cls) -> "LatestTables":
        """Return the tables in memory, for runs without Spark."""
        return LatestTables(cls.TABLES)

    def events(self, name: str) -> EventSpec:
        """Return the settings of an event input."""
        found: EventSpec = self.spec.inputs[name]
        return found

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split corrections."""
        return split_corrections(self.CORRECTIONS, self.limits(context), table)

    def limits(self, context: BatchContext) -> Limits:
        """Return the limits for corrections in a batch: rows have any age."""
        skews = [events.max_future_skew_us for events in self.spec.inputs.values()]
        skew = min((skew for skew in skews if skew is not None), default=None)
        latest = latest_advance_us(skew, context.clock_us, watermark_of(context.state), 1)
        return Limits(NO_WATERMARK, latest, context.clock_us)

    def layout(self) -> str:
        """Return LAYOUT, and the settings that stored records depend on."""
        return self.LAYOUT

    @classmethod
    def due_us(cls, state: Mapping[str, Any]) -> int | None:
        """Return the clock time at which a batch must run even without input; None if there is none."""
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

    def __init__(self, tables: Sequence[RowTable]) -> None:
        self._table, self._in_side_output = tables[0], len(tables) > 1
        self.rows = LatestRows(*self._table.changelog.identity)
        """The latest row by identity."""

    def add(self, results: Sequence[ShardResult]) -> list[Row]:
        """Take a batch's changes; return the changes of the results."""
        if not self._in_side_output:
            return [row for result in results for row in self.rows.add(result.changes)]
        for result in results:
            if self._table.output in result.side:
                self.rows.add(result.side[self._table.output])
        return [row for result in results for row in plain_rows(result.changes)]

    def stored(self, operator: object, state: Mapping[str, Any]) -> pa.Table:
        """Return the rows from which stores are restored."""
        del operator, state
        restored = self._table.restored
        found = [{column.restored_as: row[column.name] for column in restored} for row in self.rows.values()]
        return pa.Table.from_pylist(found, schema=self._table.restored_schema())

    def lookups(self, operator: object, state: Mapping[str, Any], asked: pa.Table) -> pa.Table:
        """Raise NotImplementedError: shards ask for nothing."""
        raise NotImplementedError
