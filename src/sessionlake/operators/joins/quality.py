"""Checks of the messages that a join keeps."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.warehouse import schemas


def messages(rows: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """Return the messages with a column `repeated`, the same in each row: the messages beyond the first of a side and position."""
    counted = rows.agg(F.count("*") - F.count_distinct(F.struct(schemas.SIDE, "position"))).collect()[0][0]
    return rows.withColumn("repeated", F.lit(counted).cast("bigint")), {"repeated": "bigint"}


CHECKED = {schemas.JOIN_MESSAGES: messages}
"""The functions by table."""
