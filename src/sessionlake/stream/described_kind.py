"""The driver's half of any operator that is data: its tables, and how its state is read back from these."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.sources.base import Source
from sessionlake.stream.described import Described, DescribedSpec
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.kind import Kind, Lookups, State, TableSpec, changelog_output, changelog_table
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse import row_table
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.batches import last_batch_id
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.row_table import RowTable
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.versions import all_versions
from sessionlake.warehouse.views import merged_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class DescribedKind:
    """See `Kind` for the methods."""

    described: ClassVar[type[Described]]
    changelog: ClassVar[Changelog]
    late_columns: ClassVar[tuple[pa.Field, ...]]
    numbers_messages: ClassVar[bool]
    spec: Any

    def __init_subclass__(cls, of: type[Described] | None = None) -> None:
        if of is None:
            return
        cls.described, cls.changelog = of, of.TABLES[-1].changelog
        cls.late_columns, cls.numbers_messages = of.LATE_COLUMNS, of.NUMBERED

    def __init__(self, config: Config, spec: DescribedSpec) -> None:
        self._config, self.spec = config, spec
        self.described_tables = self.described(spec).tables

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Pinned | None) -> Self:
        """Make it of a config."""
        return cls(config, cls.described.of(config, sources, pinned).spec)

    @property
    def changelogs(self) -> tuple[Changelog, ...]:
        """Return those of the tables."""
        return tuple(table.changelog for table in self.described_tables)

    @classmethod
    def changelogs_in(cls, config: Config) -> tuple[Changelog, ...]:
        """Return those of the tables."""
        return tuple(table.changelog for table in cls.described.tables_in(config))

    @classmethod
    def bound_settings(cls) -> dict[str, Any]:
        """Return those of the operator."""
        return dict(cls.described.BOUND)

    @property
    def inputs(self) -> Mapping[str, EventSpec]:
        """Return those of the spec."""
        return self.spec.inputs

    @property
    def aggregates(self) -> Sequence[Aggregate]:
        """Return those of the spec."""
        return self.spec.aggregates

    @property
    def event_types(self) -> Mapping[str, pa.DataType]:
        """Return those of the spec."""
        return self.spec.event_types

    def operator(self, live: Mapping[str, Any] | None = None) -> Operator[Any]:
        """Return the workers' half."""
        made: Any = self.described(self.spec if live is None else self.spec.under(live))
        return cast(Operator[Any], made)

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the snapshot and the changelog of each table."""
        return tuple(spec for table in self.described_tables for spec in self._tables_of(table))

    def _tables_of(self, table: RowTable) -> Iterator[TableSpec]:
        schema = table.snapshot_schema(self._fields(table))
        name = table.changelog.snapshot
        yield TableSpec(name, schema, f"Snapshot of {table.rows}, as far as compacted{table.notes.get(name, '')}")
        yield changelog_table(table.changelog, self.changes_schema(table))

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the changelogs."""
        return tuple(
            changelog_output(table.changelog, tables, self.changes_schema(table), table.output, table.conversion)
            for table in self.described_tables
        )

    def changes_schema(self, table: RowTable) -> pa.Schema:
        """Return the schema of a changelog."""
        return table.changes_schema(self._fields(table), marks=True)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> "DataFrame":
        """Return the rows as of the last batch, which may have committed to the first table alone."""
        first, *others = self.described_tables
        of, from_us = first.changelog, cast(Described, operator).restored_from_us(state)
        until = last_batch_id(tables, self.changelog) if others else None

        def narrowed(rows: "DataFrame") -> "DataFrame":
            return rows if from_us is None else rows.where(_micros(of, of.start) >= from_us)

        return all_versions(tables, [_restored(c) for c in first.restored], of=of, until=until, narrowed=narrowed)

    @property
    def lookups(self) -> Lookups | None:
        """Return the reading of results as they were sent last, if shards ask for these."""
        return self._sent_rows if self.described.ASKS else None

    def _sent_rows(self, tables: Tables, operator: Operator[Any], state: State, asked: "DataFrame") -> "DataFrame":
        """Return the results that shards ask for by key and start, as they were sent last (SENT_SCHEMA)."""
        del operator, state
        of = self.changelog
        keys = F.broadcast(asked.select(F.col("key").alias(of.key)).distinct())
        live = merged_rows(tables, narrowed=lambda rows: rows.join(keys, of.key, "left_semi"))
        rows = live.select(
            F.col(of.key).alias("key"),
            _micros(of, of.start).alias("start_us"),
            _micros(of, of.end).alias("end_us"),
            "revision",
            "trigger",
        )
        return rows.join(asked, ["key", "start_us"], "left_semi")

    def checked(self, operator: Operator[Any], state: State, stats: Mapping[str, int]) -> Sequence[str]:
        """Return nothing: no batch is refused."""
        del operator, state, stats
        return ()

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return that of the operator."""
        return cast(Described, operator).layout()

    def suite_values(self) -> Mapping[str, int | bool]:
        """Return those of the spec."""
        return self.spec.suite_values

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return that of the operator."""
        return cls.described.expired_in(config, state)

    @classmethod
    def unneeded(cls, config: Config, state: State) -> Mapping[str, str]:
        """Return those of the operator: other rows trimmed from a changelog are in its snapshot."""
        del config, state
        return cls.described.UNNEEDED

    def due_us(self, state: State) -> int | None:
        """Return that of the operator."""
        return self.described(self.spec).due_us(state)

    def _fields(self, table: RowTable) -> list[pa.Field]:
        return self.spec.fields(table, self._config.aggregates)


def _micros(of: Changelog, name: str) -> "Column":
    """Return a row's start or end as a whole number."""
    return F.unix_micros(name) if of.has_times else F.col(name)


def _restored(column: row_table.Column) -> "Column":
    return _in_micros(F.col(column.name), column.type).alias(str(column.restored_as))


def _in_micros(value: "Column", type_: pa.DataType) -> "Column":
    """Return a value with microseconds in the place of times, as `row_table.in_micros` has types."""
    if type_ == row_table.in_micros(type_):
        return value
    if pa.types.is_list(type_):
        return F.transform(value, lambda element: _in_micros(element, type_.value_type))
    if pa.types.is_struct(type_):
        return F.struct(*(_in_micros(value[field.name], field.type).alias(field.name) for field in type_))
    return F.unix_micros(value)


@cache
def described_kind(described: type[Described]) -> type[Kind]:
    """Return the kind of an operator without jobs on late or refused events."""

    class Plain(DescribedKind, of=described):
        """See `DescribedKind`."""

        restating = redeeming = closing_watermark = None

    return Plain
