"""A table of rows, declared once as columns: its schemas, a batch's changes and a restore's rows all derive from them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import numpy as np
import pyarrow as pa

from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import Changelog

_OP = schemas.commented("op", pa.string(), "upsert, delete")


class Role(Enum):
    """The part of a column in a change."""

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
        """The column with its comment, which the tables show."""
        return schemas.commented(self.name, self.type, self.comment)


class Batch(Protocol):
    """A batch, as `engine.operator.BatchContext` has it."""

    @property
    def clock_us(self) -> int:
        """When it began."""

    @property
    def batch_id(self) -> int:
        """Its number."""


VALUES = None
"""The place of the columns that a pipeline's own config adds, such as aggregates."""


@dataclass(frozen=True)
class RowTable:
    """The rows of an operator that are identified by `changelog.identity`: each change in one table, the latest rows in another."""

    changelog: Changelog
    """The names of both tables, and the SQL over them."""
    columns: tuple[Column | None, ...]
    """All columns in their order, VALUES among them."""
    rows: str
    """The rows in words, as in "snapshot of both sides' rows"."""
    part: str = "0: all rows are one part, and files hold ranges of keys"
    """The comment of the snapshot's column of the part that a row is in."""
    output: str = "changes"
    """The name that shards give to the changes among their outputs (`engine.outputs`)."""

    @property
    def known(self) -> Iterator[Column]:
        """The columns that are the same in every pipeline."""
        return (column for column in self.columns if column is not VALUES)

    @property
    def restored(self) -> list[Column]:
        """The columns that restore a store, in the order in which stores get them."""
        return [column for column in self.known if column.restored_as is not None]

    def changes_schema(self, values: Iterable[pa.Field], *, marks: bool) -> pa.Schema:
        """Return the schema of the changes, with or without the marks of batch and attempt; `values` are the fields for VALUES."""
        return pa.schema([_OP, *self._fields(values), *(schemas.BATCH_MARKS if marks else [])])

    def snapshot_schema(self, values: Iterable[pa.Field]) -> pa.Schema:
        """Return the schema of the latest rows."""
        return pa.schema([*self._fields(values), schemas.commented(self.changelog.date, pa.int64(), self.part)])

    def changes(
        self, schema: pa.Schema, op: str, keys: pa.Array, known: Mapping[str, pa.Array], by: Batch | None
    ) -> pa.Table:
        """Return changes of the rows of some keys, as `schema` (`changes_schema` without marks) has them.

        `known` has values by column; the other columns are null, counts 0. `by` is the batch that makes the changes; None for
        rows as they were, whose clock and number are in `known`.
        """
        rows = len(keys)
        found = {"op": pa.repeat(op, rows), **known}
        for column in self.known:
            if column.role is Role.KEY:
                found[column.name] = keys
            elif column.role is Role.COUNT:
                found.setdefault(column.name, pa.array(np.zeros(rows, np.int64)))
            elif by is not None and column.role in (Role.CLOCK, Role.REVISION):
                number = by.clock_us if column.role is Role.CLOCK else by.batch_id
                found[column.name] = pa.array(np.full(rows, number)).cast(column.type)
        arrays = [found[field.name] if field.name in found else pa.nulls(rows, field.type) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def restored_schema(self) -> pa.Schema:
        """Return the schema of the rows that restore a store."""
        types = [(str(c.restored_as), pa.int64() if pa.types.is_timestamp(c.type) else c.type) for c in self.restored]
        return pa.schema(types)

    def _fields(self, values: Iterable[pa.Field]) -> Iterator[pa.Field]:
        for column in self.columns:
            yield from values if column is VALUES else [column.field]
