"""Columns by their names, as Spark takes them: the one place in which a name of a user's column becomes one of Spark's."""

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionlake.warehouse.dialects import SPARK


def column(name: str) -> Column:
    """Return the column of a name, in which dots and backquotes mean nothing."""
    return F.col(SPARK.named(name))


def columns(names: Iterable[str]) -> list[Column]:
    """Return the columns of some names, in their order."""
    return [column(name) for name in names]
