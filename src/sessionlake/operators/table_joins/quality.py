"""Checks of the rows of both sides that a join of tables keeps."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.operators.table_joins.table import SIDE_ROWS


def side_rows(rows: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """Return the changes of rows with a column `repeated`, the same in each row: the changes beyond the first of a row and batch."""
    named = F.struct(*SIDE_ROWS.changelog.identity, "batch_id")
    counted = rows.agg(F.count("*") - F.count_distinct(named)).collect()[0][0]
    return rows.withColumn("repeated", F.lit(counted).cast("bigint")), {"repeated": "bigint"}


CHECKED = {SIDE_ROWS.changelog.changes: side_rows}
"""The functions by table."""
