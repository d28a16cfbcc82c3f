"""What a pipeline computes as users read it with Spark: sessions_live, windows_live, exact at any moment."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.quarantine import RATE, RULE, rate_sql
from sessionlake.errors import ConfigError, NoBatchesError
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.changelog import SPARK
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows


def read_live(spark: SparkSession, config: Config) -> DataFrame:
    """Return all rows as of the last committed batch, the snapshot and the changelog's tail merged on read.

    They are shown as the operator's section says (`OperatorSection.shown`): all, those that are final and so can't change
    by events any more, or all with a column `final`. NoBatchesError where there are none yet.
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


def read_quarantined(spark: SparkSession, config: Config) -> DataFrame:
    """Return the sessions in quarantine as of the last committed batch, those that are not final, too.

    They have the columns of `sessions_live`, the threshold that they are above (`rule`), and `events_per_minute`.
    ConfigError where the config has no [quarantine].
    """
    rule = config.quarantined_sql(SPARK.micros)
    if rule is None:
        raise ConfigError("quarantine: is missing; add it to the config, with max_events, max_rate or max_length")
    rows = merged_rows(Tables.of(spark, config)).withColumn(RULE, F.expr(rule)).where(f"{RULE} is not null")
    return rows.withColumn(RATE, F.expr(rate_sql(SPARK.micros)))
