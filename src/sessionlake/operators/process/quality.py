"""Checks of the states that a processor keeps."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.operators.process.table import STATES


def states(rows: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """Return the states' changes with a column `repeated`, the same in each row: the changes beyond the first of a key and batch."""
    counted = rows.agg(F.count("*") - F.count_distinct(F.struct(STATES.changelog.key, "batch_id"))).collect()[0][0]
    return rows.withColumn("repeated", F.lit(counted).cast("bigint")), {"repeated": "bigint"}


CHECKED = {STATES.changelog.changes: states}
"""The functions by table."""
