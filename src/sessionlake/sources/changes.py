"""Changes of rows as records: each has an offset, by which the changes of a key are in order (docs/rules.md, rule 308)."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.sources.record_columns import OFFSET, PARTITION
from sessionlake.warehouse.changelog import SIGN


def with_places(rows: DataFrame, version: Column) -> DataFrame:
    """Return rows with their SIGN, and the place of each in the order of changes; `version` is the whole number of its change.

    Of one version, rows that are added come after those that are taken back.
    """
    offset = version.cast("bigint") * 2 + F.when(F.col(SIGN) > 0, F.lit(1)).otherwise(F.lit(0))
    return rows.withColumns({OFFSET: offset, PARTITION: F.lit(0).cast("bigint")})
