"""An operator as data: tables of rows and rules over them, from which the workers' half derives; without Spark.

`described_kind` has the driver's half. Unless an operator says otherwise, rows have any age, and nothing waits for a time.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.config.load import Config
from sessionlake.engine.operator import BatchContext, ShardResult, Split
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.stream import ingest
from sessionlake.stream.control import CorrectionKind, Limits, latest_advance_us, split_corrections
from sessionlake.stream.event_operator import EventOperator
from sessionlake.stream.ingest import EVENTS, EventSpec
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.watermark import NO_WATERMARK, advanced, watermark_of
from sessionlake.warehouse.latest_rows import LatestRows, Row, plain_rows
from sessionlake.warehouse.row_table import RowTable


class DescribedSpec(Protocol):
    """The settings for workers."""

    @property
    def inputs(self) -> Mapping[str, EventSpec]:
        """The event inputs by name."""

    @property
    def aggregates(self) -> Sequence[Aggregate]:
        """The aggregates in states; none if states have none."""

    @property
    def event_types(self) -> Mapping[str, pa.DataType]:
        """The columns read from events, as the archive has them."""

    @property
    def suite_values(self) -> Mapping[str, int | bool]:
        """Numbers for quality suites."""

    def fields(self, of: RowTable, texts: Mapping[str, str]) -> list[pa.Field]:
        """Return the pipeline's own columns of a table's rows; `texts` describe aggregates by name."""

    def under(self, live: Mapping[str, Any]) -> Self:
        """Return the spec under other settings of classification (`Config.live_settings`)."""


@dataclass(frozen=True)
class OneInputSpec:
    """The part of a `DescribedSpec` that has one event input."""

    events: EventSpec

    @property
    def inputs(self) -> Mapping[str, EventSpec]:
        """The one."""
        return {EVENTS: self.events}

    @property
    def event_types(self) -> Mapping[str, pa.DataType]:
        """The columns besides key, time and id."""
        return self.events.stored_types

    @property
    def suite_values(self) -> Mapping[str, int | bool]:
        """None."""
        return {}

    def under(self, live: Mapping[str, Any]) -> Self:
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        return replace(self, events=ingest.with_live_settings(self.events, live))


@dataclass(frozen=True)
class Described(EventOperator):
    """See `engine.operator.Operator` for the methods that are not here."""

    TABLES: ClassVar[tuple[RowTable, ...]]
    """The tables in the order of their commits: the first one's rows restore stores, the last one's are the results."""
    CORRECTIONS: ClassVar[Mapping[str, CorrectionKind]]
    """The known corrections, by kind."""
    LAYOUT: ClassVar[str] = "1"
    """The version of the records in stores."""
    NUMBERED: ClassVar[bool] = False
    """Whether accepted rows are numbered in the order of their source (`stream/positions.py`)."""
    UNNEEDED: ClassVar[Mapping[str, str]] = {}
    """By table the SQL of rows no longer needed for any result."""
    BOUND: ClassVar[Mapping[str, Any]] = {}
    """Settings which bind the tables, besides the config's. If one changes, the tables must be rebuilt."""
    LATE_COLUMNS: ClassVar[tuple[pa.Field, ...]] = ()
    """Further columns in the table of late events."""
    spec: Any

    @property
    def ticks(self) -> bool:
        """Whether rows are numbered."""
        return self.NUMBERED

    @classmethod
    @abstractmethod
    def of(cls, config: Config, sources: Mapping[str, TypedSource], pinned: Pinned | None) -> Self:
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
        """Return what a store's content depends on, besides its keys."""
        return self.LAYOUT

    @classmethod
    def due_us(cls, state: Mapping[str, Any]) -> int | None:
        """Return the time, by the clock, at which a batch is needed though nothing comes in; None: nothing waits for a time."""
        del state
        return None

    @classmethod
    def expired_in(cls, config: Config, state: Mapping[str, Any]) -> int:
        """Return the time before which restates are refused: no row is too old, but with `unique_for` events are, and identities are not needed."""
        asked = [side.event.unique_us for side in config.inputs.values()]
        longest = max((unique_us for unique_us in asked if unique_us is not None), default=None)
        return NO_WATERMARK if longest is None else watermark_of(state) - longest

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the watermark, which says how far events have come, and closes nothing; of several inputs the least."""
        return advanced(state, stats, tuple(self.spec.inputs))

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return that no event is too old."""
        del state
        return NO_WATERMARK


class LatestTables:
    """The rows in memory from which stores are restored; see `local.tables.LocalTables` for the methods."""

    def __init__(self, tables: Sequence[RowTable]) -> None:
        self._table, self._is_side = tables[0], len(tables) > 1
        self.rows = LatestRows(*self._table.changelog.identity)
        """By identity."""

    def add(self, results: Sequence[ShardResult]) -> list[Row]:
        """Take a batch's changes; return those of results."""
        if not self._is_side:
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
