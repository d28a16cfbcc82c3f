"""The last row of each identity of a changelog, in memory: the place of a pipeline's tables in a process without them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sessionlake.warehouse.row_table import in_micros

Row = dict[str, Any]


def plain_rows(table: pa.Table) -> list[Row]:
    """Return rows with times as microseconds, since Python can't hold all of them."""
    rows: list[Row] = table.cast(pa.schema([(field.name, in_micros(field.type)) for field in table.schema])).to_pylist()
    return rows


class LatestRows(dict[tuple[Any, ...], Row]):
    """Rows by identity, except for rows that a delete named last."""

    def __init__(self, *identity: str) -> None:
        super().__init__()
        self._identity = identity

    def add(self, table: pa.Table, names: Mapping[str, str] | None = None) -> list[Row]:
        """Take changes, with `op` upsert, delete or emit, and return them as plain rows, renamed by `names` if it is given.

        A row that is emitted has no later version, and is not kept.
        """
        if names is not None:
            table = table.rename_columns([names.get(name, name) for name in table.column_names])
        rows = plain_rows(table)
        for row in rows:
            identity = tuple(row[name] for name in self._identity)
            if row["op"] == "upsert":
                self[identity] = row
            elif row["op"] == "delete":
                self.pop(identity, None)
        return rows

    def sorted_rows(self) -> list[Row]:
        """Return the rows, ordered by identity."""
        return [self[identity] for identity in sorted(self)]


def restored_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> pa.Table:
    """Return rows in the form from which a store is restored: `key` is text, `state` is bytes, all other columns are integers."""
    types = {"key": pa.string(), "state": pa.binary()}
    return pa.Table.from_pylist(list(rows), schema=pa.schema([(name, types.get(name, pa.int64())) for name in names]))
