"""A table of rows, declared once as columns: its schemas, a batch's changes and a restore's rows all derive from them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import pyarrow as pa

from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.latest_rows import LatestTable

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


VALUES = None
"""The place of the columns that a pipeline's own config adds, such as aggregates."""


@dataclass(frozen=True)
class RowTable:
    """The rows of an operator that are identified by `changelog.identity`: each change in one table, the latest rows in another."""

    changelog: Changelog
    """The names of both tables, and the SQL over them."""
    columns: tuple[Column | None, ...]
    """All columns in their order, VALUES among them."""
    part: str
    """The comment of the snapshot's column of the part that a row is in."""

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
        self, schema: pa.Schema, op: str, keys: pa.Array, known: Mapping[str, pa.Array], made: tuple[int, int] | None
    ) -> pa.Table:
        """Return changes of the rows of some keys, as `schema` (`changes_schema` without marks) has them.

        `known` has values by column; the other columns are null, counts 0. `made` is the clock, microseconds, and the number of the
        batch that makes the changes; None for rows as they were, whose clock and number are in `known`.
        """
        rows = len(keys)
        found = {"op": pa.repeat(op, rows), **known}
        for column in self.known:
            if column.role is Role.KEY:
                found[column.name] = keys
            elif column.role is Role.COUNT:
                found.setdefault(column.name, pa.array(np.zeros(rows, np.int64)))
            elif made is not None and column.role in (Role.CLOCK, Role.REVISION):
                number = made[0] if column.role is Role.CLOCK else made[1]
                found[column.name] = pa.array(np.full(rows, number)).cast(column.type)
        arrays = [found[field.name] if field.name in found else pa.nulls(rows, field.type) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def in_memory(self) -> LatestTable:
        """Return the latest rows in memory, for runs without Spark."""
        names = {column.name: str(column.restored_as) for column in self.restored}
        return LatestTable(self.changelog.identity, names)

    def _fields(self, values: Iterable[pa.Field]) -> Iterator[pa.Field]:
        for column in self.columns:
            yield from values if column is VALUES else [column.field]
