"""The results of a pipeline with Spark: sessions_live, windows_live ..., exact at any time."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.errors import NoBatchesError
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.changelog import SPARK
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows


def read_live(spark: SparkSession, config: Config) -> DataFrame:
    """Return all rows as of the last committed batch, the snapshot and the changelog's tail merged on read.

    They are shown as the operator's section says (`OperatorSection.shown`): all, those that are final and so can't change
    by events any more, or all with a column `final`. NoBatchesError if there are none yet.
    """
    tables, section = Tables.of(spark, config), config.section
    of = tables.changelog
    if not tables[of.changes].exists():
        raise NoBatchesError(
            f"pipeline.warehouse: {config.pipeline.warehouse!r} has no {of.snapshot} yet; run `sessionlake run` first"
        )
    last = find_last_batch(tables)
    rows = merged_rows(tables)
    rule = config.quarantined_sql(SPARK.micros)
    if rule is not None:
        rows = rows.where(f"{rule} is null")
    if section.shown == "all":
        return rows
    final = F.expr(section.final_sql(of.end, {} if last is None else last.state))
    return rows.where(final) if section.shown == "final" else rows.withColumn("final", final)
