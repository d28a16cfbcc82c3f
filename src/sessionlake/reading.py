"""`sessionlake.read`, `read_sessions`, `read_windows`, `read_joins` and `read_table`: the results of a pipeline, with Spark or without."""

from typing import TYPE_CHECKING, Any, overload

from sessionlake.config.load import Config
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession


@overload
def read(config: Config, /) -> "DuckDBPyRelation": ...


@overload
def read(spark: "SparkSession", config: Config, /) -> "DataFrame": ...


def read(*arguments: Any) -> Any:
    """Return all rows of any pipeline as of the last committed batch, given a config, or a Spark session and a config.

    It calls the reader of the pipeline's operator, for example `read_sessions`.
    """
    return _live("read", arguments)


@overload
def read_sessions(config: Config, /) -> "DuckDBPyRelation": ...


@overload
def read_sessions(spark: "SparkSession", config: Config, /) -> "DataFrame": ...


def read_sessions(*arguments: Any) -> Any:
    """Return all sessions as of the last committed batch, given a config, or a Spark session and a config.

    Without Spark a relation of DuckDB, whose rows come by .fetchall(), .to_arrow_table(), .df() or .pl(); with it a
    DataFrame. With emit = "final" only sessions that ended before the close time, and so can't change by events any more.
    """
    return _live("read_sessions", arguments)


@overload
def read_windows(config: Config, /) -> "DuckDBPyRelation": ...


@overload
def read_windows(spark: "SparkSession", config: Config, /) -> "DataFrame": ...


def read_windows(*arguments: Any) -> Any:
    """Return all windows that were sent as of the last committed batch, given a config, or a Spark session and a config.

    As `read_sessions` does; the column `final` says which events can't change any more.
    """
    return _live("read_windows", arguments)


@overload
def read_joins(config: Config, /) -> "DuckDBPyRelation": ...


@overload
def read_joins(spark: "SparkSession", config: Config, /) -> "DataFrame": ...


def read_joins(*arguments: Any) -> Any:
    """Return all pairs that were sent as of the last committed batch, given a config, or a Spark session and a config.

    As `read_sessions` does.
    """
    return _live("read_joins", arguments)


@overload
def read_table(config: Config, /) -> "DuckDBPyRelation": ...


@overload
def read_table(spark: "SparkSession", config: Config, /) -> "DataFrame": ...


def read_table(*arguments: Any) -> Any:
    """Return all rows of a keyed table as of the last committed batch, given a config, or a Spark session and a config.

    As `read_sessions` does.
    """
    return _live("read_table", arguments)


def _live(reader: str, arguments: tuple[Any, ...]) -> Any:
    """Return the rows; ConfigError if a reader of another operator's rows was called."""
    config: Config = arguments[-1]
    rows = config.entry.rows
    own = f"read_{rows.command}"
    if reader not in (own, "read"):
        raise ConfigError(
            f"{reader}: this pipeline computes {rows.computed}; use: sessionlake.{own if own in globals() else 'read'}"
        )
    if len(arguments) == 1:
        from sessionlake.serve.queries import read_live as without_spark

        return without_spark(*arguments)
    from sessionlake.operators.views import read_live as with_spark

    return with_spark(*arguments)
