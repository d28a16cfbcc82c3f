"""A Delta table as DuckDB scans it: only the columns and rows that a query asks for are read, batch by batch."""

from collections.abc import Sequence
from typing import Any, cast

from deltalake import DeltaTable
from duckdb._sources import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, In, Lit, Node, Postfix, Unary

from sessionlake.warehouse.arrow_files import delta_rows, moment_sql

_TIME = "TIMESTAMP WITH TIME ZONE"
_ALIKE = {"VARCHAR", "BIGINT", "INTEGER", "BOOLEAN", "DATE", _TIME}
"""Types whose values both engines order alike; they differ about NaN."""


class TableScan(ArrowScanSource):
    """A table at its version, or its rows that fulfil a condition; deletion vectors are heeded.

    The condition is SQL of DataFusion, which leaves out files and row groups by their statistics. DuckDB offers what a
    query compares with constants, by the protocol of its own scans of Arrow datasets, which is why its version is pinned.
    """

    def __init__(self, table: DeltaTable, condition: str | None = None) -> None:
        super().__init__(self)
        self._table, self._condition = table, condition
        self._schema = delta_rows(table).schema

    def __arrow_c_schema__(self) -> Any:
        """Return the schema of the rows."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return all rows."""
        del requested_schema
        return self.stream(None, ())[0]

    def accepts(self, predicate: Node) -> bool:
        """Say whether `stream` can leave out the rows for which this does not hold."""
        match predicate:
            case Binary(op="AND" | "OR", left=left, right=right):
                return self.accepts(left) and self.accepts(right)
            case Unary(op="NOT", operand=operand):
                return self.accepts(operand)
            case Postfix(operand=Col(parts=(_,))):
                return True
            case Binary(left=Col(parts=(_,)), right=Lit(type=kind)):
                return kind in _ALIKE
            case In():
                return all(self.accepts(Binary("=", predicate.operand, value)) for value in predicate.values)
        return False

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        """Return the rows for which all filters hold, with the columns of these indices; None means all columns."""
        conditions = [*([self._condition] if self._condition else []), *(_exact(node).fragment() for node in filters)]
        reader = delta_rows(
            self._table,
            None if columns is None else [self._schema.names[i] for i in columns],
            " and ".join(f"({condition})" for condition in conditions) or None,
        )
        return reader.__arrow_c_stream__(), columns is not None


class _Moment(Lit):
    """A time as DataFusion takes it whatever its year."""

    def _render(self, children: list[str]) -> str:
        del children
        return moment_sql(cast("int", self.value))


def _exact(node: Node) -> Node:
    """Return a predicate with such times."""
    match node:
        case Lit(type=kind) if kind == _TIME:
            return _Moment(node.value, kind)
        case Binary():
            return Binary(node.op, _exact(node.left), _exact(node.right))
        case Unary():
            return Unary(node.op, _exact(node.operand))
        case In():
            return In(node.operand, [_exact(value) for value in node.values])
    return node


def sql_text(value: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + value.replace("'", "''") + "'"
