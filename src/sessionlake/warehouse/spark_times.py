"""How Spark writes times and dates into Parquet files."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

_AS_ARROW: Mapping[str, str] = {
    # By default it is INT96, which most readers without Spark take as nanoseconds: 9999-12-31 is then in 1816.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Otherwise days before 1582-10-15 may be those of the Julian calendar.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


def write_times_plainly(spark: SparkSession) -> None:
    """Let a session write times and dates as Arrow does, whatever its settings were, from now on.

    The settings stay, because another thread may write in the same session.
    """
    for name, value in _AS_ARROW.items():
        spark.conf.set(name, value)
