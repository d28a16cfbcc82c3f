"""`sessionlake.read`, `read_sessions`, `read_windows`, `read_joins` and `read_table`: the results of a pipeline, with Spark or without."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, overload

from sessionlake.config.load import Config
from sessionlake.config.project import config_named
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession


class Reader(Protocol):
    """A function that is given a config, or a project's directory and the name of a pipeline; a Spark session may come first."""

    @overload
    def __call__(self, config: Config, /) -> "DuckDBPyRelation": ...
    @overload
    def __call__(self, project: str | Path, name: str, /) -> "DuckDBPyRelation": ...
    @overload
    def __call__(self, spark: "SparkSession", config: Config, /) -> "DataFrame": ...
    @overload
    def __call__(self, spark: "SparkSession", project: str | Path, name: str, /) -> "DataFrame": ...


def _reader(function: Callable[..., Any]) -> Reader:
    return cast("Reader", function)


@_reader
def read(*arguments: Any) -> Any:
    """Return all rows of any pipeline as of the last committed batch, given its config, or a project's directory and its name.

    A Spark session may come first. It calls the reader of the pipeline's operator, for example `read_sessions`.
    """
    return _live("read", arguments)


@_reader
def read_sessions(*arguments: Any) -> Any:
    """Return all sessions as of the last committed batch, given a config, or a project's directory and a pipeline's name.

    Without Spark a relation of DuckDB, whose rows come by .fetchall(), .to_arrow_table(), .df() or .pl(). With a Spark
    session as the first argument a DataFrame. With emit = "final" only sessions that ended before the close time, and so
    can't change by events any more. ConfigError if the pipeline computes something else, or the project has no such pipeline.
    """
    return _live("read_sessions", arguments)


@_reader
def read_windows(*arguments: Any) -> Any:
    """Return all windows that were sent as of the last committed batch, as `read_sessions` does.

    The column `final` says which events can't change any more.
    """
    return _live("read_windows", arguments)


@_reader
def read_joins(*arguments: Any) -> Any:
    """Return all pairs that were sent as of the last committed batch, as `read_sessions` does."""
    return _live("read_joins", arguments)


@_reader
def read_table(*arguments: Any) -> Any:
    """Return all rows of a keyed table as of the last committed batch, as `read_sessions` does."""
    return _live("read_table", arguments)


def _live(reader: str, arguments: tuple[Any, ...]) -> Any:
    """Return the rows; ConfigError if a reader of another operator's rows was called."""
    *spark, config = arguments
    if not isinstance(config, Config):
        *spark, directory = spark
        config = config_named(directory, config)
    rows = config.entry.rows
    own = f"read_{rows.command}"
    if reader not in (own, "read"):
        raise ConfigError(
            f"{reader}: this pipeline computes {rows.computed}; use: sessionlake.{own if own in globals() else 'read'}"
        )
    if not spark:
        from sessionlake.serve.queries import read_live as without_spark

        return without_spark(config)
    from sessionlake.operators.views import read_live as with_spark

    (session,) = spark
    return with_spark(session, config)
