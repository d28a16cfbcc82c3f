"""`sessionlake.read_sessions`: sessions for whoever has Spark, and for whoever has not."""

from typing import TYPE_CHECKING, Any, overload

from sessionlake.config.load import Config

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession


@overload
def read_sessions(config: Config, /) -> "DuckDBPyRelation": ...


@overload
def read_sessions(spark: "SparkSession", config: Config, /) -> "DataFrame": ...


def read_sessions(*arguments: Any) -> Any:
    """Return all sessions as of the last committed batch, given a config, or a Spark session and a config.

    Without Spark a relation of DuckDB, whose rows come by .fetchall(), .to_arrow_table(), .df() or .pl(); with it a
    DataFrame. With emit = "final" only sessions that ended before the close time, and so can't change by events any more.
    """
    if len(arguments) == 1:
        from sessionlake.serve.queries import read_sessions as without_spark

        return without_spark(*arguments)
    from sessionlake.operators.sessions.views import read_sessions as with_spark

    return with_spark(*arguments)
