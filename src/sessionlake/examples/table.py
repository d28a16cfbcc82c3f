"""A query's rows as a table of the terminal."""

from pyspark.sql import DataFrame
from rich.table import Table


def table_of(title: str, rows: DataFrame) -> Table:
    """Return the rows, few of them, under a title."""
    table = Table(*rows.columns, title=title, title_justify="left")
    for row in rows.collect():
        table.add_row(*(f"{v:,}" if isinstance(v, int) else "" if v is None else str(v) for v in row))
    return table
