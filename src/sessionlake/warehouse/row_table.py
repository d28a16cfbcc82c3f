"""A table of rows, declared once as columns: its schemas, a batch's changes and a restore's rows all derive from them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import combined
from sessionlake.columnar.identity import record_ids
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import NUMBERS, Changelog, OneRowChangelog

INT64 = pa.int64()


class Role(Enum):
    """How a change fills a column."""

    KEY = auto()
    CLOCK = auto()
    """The clock of the batch that made the change."""
    REVISION = auto()
    """The number of the batch that made the change."""
    COUNT = auto()
    """A whole number, 0 in a delete."""
    VALUE = auto()
    """Null in a delete."""


@dataclass(frozen=True)
class Column:
    """A column of the changelog and of its snapshot."""

    name: str
    type: pa.DataType
    comment: str
    role: Role = Role.VALUE
    restored_as: str | None = None
    """The name in the rows that restore a store, where times are microseconds; None if a restore does not need the column."""

    @property
    def field(self) -> pa.Field:
        """The Arrow field, with the comment as metadata."""
        return schemas.commented(self.name, self.type, self.comment)


class Batch(Protocol):
    """The attributes of `engine.operator.BatchContext` which changes need."""

    @property
    def clock_us(self) -> int:
        """When it began."""

    @property
    def batch_id(self) -> int:
        """Its number."""


VALUES = None
"""Placeholder in `RowTable.columns` for columns from the pipeline's config, such as aggregates."""


@dataclass(frozen=True)
class RowTable:
    """Rows with an identity, `changelog.identity`: each change in one table, the latest rows in another."""

    changelog: Changelog
    """The names of both tables, and the SQL over them."""
    columns: tuple[Column | None, ...]
    """All columns in their order, VALUES among them."""
    rows: str
    """The rows in words, for the tables' comments."""
    output: str = "changes"
    """The changes' name among the outputs of a shard (`engine.outputs`)."""
    hashed: tuple[str, ...] = ()
    """The whole numbers and times whose hash with the key is the row's id, `changelog.id`. Without them rows have no id."""
    computed: tuple[Column, ...] = ()
    """Further columns computed from the others. `compute` appends them to changes from shards."""
    compute: Callable[[pa.Table], pa.Table] | None = None
    changed_only: tuple[Column, ...] = ()
    """Columns of changes alone, after the others."""
    stored_only: tuple[Column, ...] = ()
    """Columns of the snapshot alone."""
    op: str = "upsert, delete"
    """The kinds of changes, for the comment."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """By the name of the snapshot, or of its column of id or part, words to append to the comment."""
    named_after: str | None = None
    """The column of the snapshot after which id and part come; None if these are the last."""

    @property
    def fixed(self) -> Iterator[Column]:
        """The columns which do not depend on the config."""
        return (column for column in self.columns if column is not VALUES)

    @property
    def restored(self) -> list[Column]:
        """The columns which restore a store, in their order."""
        return [column for column in self.fixed if column.restored_as is not None]

    def changes_schema(self, values: Iterable[pa.Field], *, marks: bool) -> pa.Schema:
        """Return the schema of changes; `values` are the fields for VALUES.

        With `marks` it is the table's, with computed columns and the marks of batch and attempt. Without it is that of a shard's output.
        """
        marked = [*self._derived(), *schemas.BATCH_MARKS] if marks else []
        op = schemas.commented("op", pa.string(), self.op)
        more = (column.field for column in self.changed_only)
        return pa.schema([op, *self._fields(values), *more, *marked])

    def snapshot_schema(self, values: Iterable[pa.Field]) -> pa.Schema:
        """Return the schema of the latest rows."""
        fields, more = list(self._fields(values)), (column.field for column in self.stored_only)
        last = len(fields) if self.named_after is None else [f.name for f in fields].index(self.named_after) + 1
        return pa.schema([*fields[:last], *self._derived(), *more, self._part(), *fields[last:]])

    def changes(
        self, schema: pa.Schema, op: str | pa.Array, keys: pa.Array, known: Mapping[str, pa.Array], by: Batch | None
    ) -> pa.Table:
        """Return changes of the rows of some keys, as `schema` (`changes_schema` without marks) has them.

        `known` has values by column; the other columns are null, counts 0. `by` is the batch which makes the changes. Previous
        versions of rows have None, and `known` has their clock and revision. KeyError for an unknown column.
        """
        if unknown := known.keys() - set(schema.names):
            raise KeyError(f"{self.changelog.changes} has no columns {sorted(unknown)}")
        rows = len(keys)
        found = {"op": pa.repeat(op, rows) if isinstance(op, str) else op, **known}
        for column in self.fixed:
            if column.role is Role.KEY:
                found[column.name] = keys
            elif column.role is Role.COUNT:
                found.setdefault(column.name, pa.array(np.zeros(rows, np.int64)))
            elif by is not None and column.role in (Role.CLOCK, Role.REVISION):
                number = by.clock_us if column.role is Role.CLOCK else by.batch_id
                found[column.name] = pa.array(np.full(rows, number)).cast(column.type)
        arrays = [found[field.name] if field.name in found else pa.nulls(rows, field.type) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    @property
    def conversion(self) -> Callable[[pa.Table], pa.Table]:
        """Function from a shard's changes to the table's rows without marks, for workers."""
        return partial(_converted, self.changelog.key, self.changelog.id, self.hashed, self.compute)

    def restored_schema(self) -> pa.Schema:
        """Return the schema of the rows that restore a store."""
        return pa.schema([(str(column.restored_as), in_micros(column.type)) for column in self.restored])

    def _fields(self, values: Iterable[pa.Field]) -> Iterator[pa.Field]:
        for column in self.columns:
            yield from values if column is VALUES else [column.field]

    def _part(self) -> pa.Field:
        of = self.changelog
        if isinstance(of, OneRowChangelog):
            return schemas.commented(of.date, INT64, "0: all rows are one part, and files hold ranges of keys")
        if of.numbered_parts:
            return schemas.commented(of.date, INT64, f"{of.start} / {NUMBERS:,}, rounded down: files hold whole parts")
        return schemas.commented(of.date, pa.date32(), f"UTC date of {of.start}{self.notes.get(of.date, '')}")

    def _derived(self) -> Iterator[pa.Field]:
        if self.hashed:
            of, name = ", ".join((self.changelog.key, *self.hashed)), self.changelog.id
            yield schemas.commented(name, INT64, f"xxhash64({of}){self.notes.get(name, '')}")
        yield from (column.field for column in self.computed)


def _converted(
    key: str, name: str, hashed: Sequence[str], compute: Callable[[pa.Table], pa.Table] | None, changes: pa.Table
) -> pa.Table:
    if hashed:
        numbers = (combined(changes[column]).cast(INT64).to_numpy() for column in hashed)
        changes = changes.append_column(name, pa.array(record_ids(combined(changes[key]), *numbers)))
    return changes if compute is None else compute(changes)


def in_micros(type_: pa.DataType) -> pa.DataType:
    """Return a type with whole numbers, microseconds, in the place of times.

    >>> in_micros(pa.list_(pa.struct([("at", pa.timestamp("us"))])))
    ListType(list<item: struct<at: int64>>)
    """
    if pa.types.is_list(type_):
        return pa.list_(in_micros(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, in_micros(field.type)) for field in type_])
    return INT64 if pa.types.is_timestamp(type_) else type_
