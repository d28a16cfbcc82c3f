"""An operator's part on the driver: how it is built, its tables, and how its state is read back from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import CHANGES, Output
from sessionlake.sources.base import Source
from sessionlake.stream.capabilities import Redeeming, Restating
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.outputs import Rows, identified_rows, keyed_rows
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

State = dict[str, Any]
"""An operator's small state between batches; JSON values."""
Lookups = Callable[[Tables, Operator[Any], State, "DataFrame"], "DataFrame"]
"""Given the tables, the workers' half, the state and the questions of the shards, returns the answers."""
ClosingWatermark = Callable[[Tables], int | None]
"""Returns a watermark, microseconds; None if there are no rows."""
ALLOW_EXPIRY = "allow_expiry"
"""A setting of classification that is not in the config: the limits on removals by [ttl] are ignored."""
CHECKPOINT_INTERVAL = "100"
"""The number of commits after which Delta writes a checkpoint of the log of a table that batches write. Delta's default is 10.

The stream waits while Delta writes it, and each start commits to every such table."""


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
    """Return the output for a changelog, with statistics on its keys; `kind` names the output rows of tasks.

    `rows` converts the tasks' output rows to the changelog's rows. The default only adds their ids.
    """
    rows = rows or partial(identified_rows, name=of.name)
    if names := _key_columns(of, tables):
        rows = partial(keyed_rows, key=of.key, names=names, rows=rows)
        schema = schemas.with_key_columns(schema, of.key, names)
    return Output(kind, of.changes, tables[of.changes].uri, schema, rows, key=of.key, guarded=True)


def _key_columns(of: Changelog, tables: Tables) -> list[str]:
    """Return the key columns that rows of a changelog have; none in the tables of the state, and in those that lack them."""
    if of.changes != tables.changelog.changes or not tables.changelog.key_columns:
        return []
    there = tables[of.changes].read().columns
    return [name for name in tables.changelog.key_columns if name in there]


def own_tables(kind: "Kind", of: Changelog) -> tuple[TableSpec, ...]:
    """Return the tables that an operator has besides those of every pipeline; those of rows that are sent with the columns of their key."""

    def keyed(spec: TableSpec) -> TableSpec:
        return replace(spec, schema=schemas.with_key_columns(spec.schema, of.key, of.key_columns))

    return tuple(keyed(spec) if spec.name in of.tables else spec for spec in kind.tables())


class Kind(Protocol):
    """An operator, made for one pipeline's config and column types. `config.operators` names them."""

    changelog: ClassVar[Changelog]
    """The names of its tables."""
    late_columns: ClassVar[tuple[pa.Field, ...]]
    """Its further columns in the table of late events."""

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
        """Its event inputs by name. Each has its own positions and watermark. The pipeline's watermark is the smallest of them."""

    @property
    def aggregates(self) -> Sequence[Aggregate]:
        """The aggregates in its states, in their order; none if states have none."""

    @property
    def event_types(self) -> Mapping[str, pa.DataType]:
        """The columns that are computed from, as late events and the archive have them in the struct `event`."""

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Pinned | None) -> "Kind":
        """Make it of a config and its sources by input; `pinned` is what its batches have fixed, None before the first one."""

    def operator(self, live: Mapping[str, Any] | None = None) -> Operator[Any]:
        """Return the workers' half; under other settings of classification if these are given."""

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the tables that it has besides those of every pipeline."""

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the tables that its tasks write, besides those of every pipeline; the last is the changelog."""

    @classmethod
    def bound_settings(cls) -> dict[str, Any]:
        """Return the settings that bind its tables, besides the config's. If one changes, the tables must be rebuilt."""

    def checked(self, operator: Operator[Any], state: State, stats: Mapping[str, int]) -> Sequence[str]:
        """Return warnings about a batch with these numbers, given the state before it; raise an error to refuse the batch."""

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> "DataFrame":
        """Return the rows (key, ...) that restore its shards after the last commit, or all versions of them (`all_versions`)."""

    @property
    def lookups(self) -> Lookups | None:
        """Return the function that reads the rows (key, ...) that shards ask for; None if they never ask."""

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return the settings that a store's content depends on, besides its keys. If they change, every store is restored."""

    def suite_values(self) -> Mapping[str, int | bool]:
        """Return the numbers that its quality suites refer to; `gap_us`, if rows of a key must lie more than that apart."""

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return the time before which restates are refused, strictly, after the batch that left this state."""

    @classmethod
    def unneeded(cls, config: Config, state: State) -> Mapping[str, str]:
        """Return by table the SQL of rows that nothing is computed of any more, after the batch that left this state."""

    @property
    def restating(self) -> Restating | None:
        """Return how late events are taken in again; None if no event is late."""

    @property
    def redeeming(self) -> Redeeming | None:
        """Return how refused events are read again; None if an event's place depends on the ones before it."""

    def due_us(self, state: State) -> int | None:
        """Return the time, by the clock, at which a batch is needed though nothing comes in; None if none is."""

    @property
    def closing_watermark(self) -> ClosingWatermark | None:
        """Return the function of the least watermark at which nothing is open; None if no watermark closes a row."""
