"""What an operator is to everything above the engine: how it is made, what it keeps in tables, how that is read back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import CHANGES, Output
from sessionlake.sources.base import Source
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.outputs import identified_rows
from sessionlake.stream.restating import Restating
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.tables import Tables

State = dict[str, Any]
"""An operator's small state between batches; JSON values."""
Rows = Callable[[pa.Table], pa.Table]
ALLOW_EXPIRY = "allow_expiry"
"""A setting of classification that is no config's: nothing holds back what [ttl] removes."""
CHECKPOINT_INTERVAL = "100"
"""Delta writes a checkpoint of the changelog's log after so many batches, in the stream's time; its own default is 10."""


@dataclass(frozen=True)
class TableSpec:
    """A table that a pipeline is given before its first batch."""

    name: str
    schema: pa.Schema
    comment: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """Delta's table properties, without their prefix."""


def changelog_table(of: Changelog, schema: pa.Schema) -> TableSpec:
    """Return the table of changes; of its columns those have statistics by which readers skip files."""
    properties = {
        "checkpointInterval": CHECKPOINT_INTERVAL,
        "dataSkippingStatsColumns": ",".join(dict.fromkeys((of.start, of.end, "batch_id"))),
    }
    return TableSpec(of.changes, schema, f"Every change of every {of.name}: the truth", properties)


def changelog_output(
    of: Changelog, tables: Tables, schema: pa.Schema, kind: str = CHANGES, rows: Rows | None = None
) -> Output:
    """Return the output of a changelog, found by its keys; `kind` is that of the rows that tasks put out.

    `rows` makes its rows of these, where it is not their ids alone.
    """
    rows = rows or partial(identified_rows, name=of.name)
    return Output(kind, of.changes, tables[of.changes].uri, schema, rows, key=of.key, guarded=True)


class Kind(Protocol):
    """An operator, made for one pipeline's config and column types. `config.operators` names them."""

    changelog: ClassVar[Changelog]
    """How its tables are called."""
    late_columns: ClassVar[tuple[pa.Field, ...]]
    """Columns of its own in the table of late events."""

    @property
    def changelogs(self) -> tuple[Changelog, ...]:
        """Return the changelogs that its batches write, in the order of their commits; its state is read from the first."""

    @classmethod
    def changelogs_in(cls, config: Config) -> tuple[Changelog, ...]:
        """Return `changelogs` of a pipeline that is known by its config alone."""

    @property
    def numbers_messages(self) -> bool:
        """Whether its workers number accepted rows in the order of their source (`stream/positions.py`)."""

    @property
    def inputs(self) -> Mapping[str, EventSpec]:
        """Its event inputs by name, each with positions and a watermark of its own; the pipeline's is the least of these."""

    @property
    def event_types(self) -> Mapping[str, pa.DataType]:
        """The columns that are computed from, as late events and the archive have them in the struct `event`."""

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Mapping[str, str] | None) -> "Kind":
        """Make it of a config and its sources by input; `pinned` has the types of their columns by the first batch, None before that one."""

    def operator(self, live: Mapping[str, Any] | None = None) -> Operator[Any]:
        """Return the workers' half; under other settings of classification where these are given."""

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the tables that it has beside those of every pipeline."""

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the tables that its tasks write, beside those of every pipeline; the last is the changelog."""

    @classmethod
    def bound_settings(cls) -> dict[str, Any]:
        """Return what its tables are bound to beside the config's own settings: another value means to build them anew."""

    def next_state(self, state: State, stats: dict[str, int]) -> State:
        """Return the state after a batch with these numbers."""

    def checked(self, operator: Operator[Any], state: State, stats: Mapping[str, int]) -> Sequence[str]:
        """Return what is to be said of a batch with these numbers, after a state; raise to refuse it before its commit."""

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> DataFrame:
        """Return the rows (key, ...) that restore its shards after the last commit."""

    def lookups(self, tables: Tables, operator: Operator[Any], state: State, asked: DataFrame) -> DataFrame:
        """Return the rows (key, ...) that answer what shards asked for."""

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return what stores depend on besides their keys: under another layout every store is restored."""

    def suite_values(self) -> Mapping[str, int | bool]:
        """Return the numbers that its quality suites refer to; `gap_us`, where rows of a key must lie more than that apart."""

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return the time before which restates are refused, strictly, after the batch that left this state."""

    @classmethod
    def unneeded(cls, config: Config, state: State) -> Mapping[str, str]:
        """Return by table the SQL of rows that nothing is computed of any more, after the batch that left this state."""

    def restated_us(self) -> Column:
        """Return, of a row of late_events, the start of the restate that it would be part of, in microseconds."""

    def restating(self, watermark_us: int) -> Restating:
        """Return how late events are merged to be handed in again, under this watermark."""

    def due_us(self, state: State) -> int | None:
        """Return the time, by the clock, at which a batch is needed though nothing comes in; None where none is."""

    def closing_watermark(self, tables: Tables) -> int | None:
        """Return the least watermark at which nothing is open; None where there is nothing."""
