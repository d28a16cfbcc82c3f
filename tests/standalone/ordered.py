"""Rows in an order of their own."""

from collections.abc import Sequence

from tests.standalone.support import Row


def sorted_rows(rows: Sequence[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)
