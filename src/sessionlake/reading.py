"""`sessionlake.read`, `read_sessions`, `read_windows`, `read_joins` and `read_table`: the results of a pipeline, with Spark or without."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, overload

from sessionlake.config.load import Config, load_config
from sessionlake.config.project import config_named, is_project, load_project, read_project
from sessionlake.errors import ConfigError
from sessionlake.warehouse.changelog import changelog_of
from sessionlake.warehouse.dialects import SPARK

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession


class HasConfig(Protocol):
    """A pipeline that is defined in Python."""

    @property
    def config(self) -> Config:
        """Its config."""


Named: TypeAlias = Config | HasConfig | str | Path
"""The names of one pipeline: its config, itself, its file, or a project's directory."""


class Reader(Protocol):
    """A function that is given a pipeline, or its name: a config, its file, or a project's directory and the pipeline's name.

    A Spark session may come first.
    """

    @overload
    def __call__(self, of: Named = ".", name: str | None = None, /) -> "DuckDBPyRelation": ...
    @overload
    def __call__(self, spark: "SparkSession", of: Named = ".", name: str | None = None, /) -> "DataFrame": ...


def _reader(function: Callable[..., Any]) -> Reader:
    return cast("Reader", function)


@_reader
def read(*arguments: Any) -> Any:
    """Return all rows of any pipeline as of the last committed batch, as `read_sessions` does of one that computes sessions."""
    return _live("read", arguments)


@_reader
def read_sessions(*arguments: Any) -> Any:
    """Return all sessions of a pipeline as of the last committed batch.

    The pipeline is given as its config, its file, a `Pipeline`, or a project's directory and its name. A directory is enough if
    one pipeline in it computes sessions; without an argument it is the current one. Without Spark the result is a relation of
    DuckDB, whose rows come by .fetchall(), .to_arrow_table(), .df() or .pl(). With a Spark session (`sessionlake.spark()`) as the
    first argument it is a DataFrame. Packed states are left out. With emit = "final" only sessions that ended before the close
    time, and so can't change by events any more. ConfigError if the pipeline computes something else, or there is none.
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
    session = next((one for one in arguments[:1] if hasattr(one, "createDataFrame")), None)
    config = _config(reader, arguments if session is None else arguments[1:])
    if reader not in (own := _own(config), "read"):
        raise ConfigError(f"{reader}: this pipeline computes {config.entry.rows.computed}; use: sessionlake.{own}")
    if session is None:
        from sessionlake.serve.queries import read_live as without_spark

        return without_spark(config)
    from sessionlake.engine.spark import require_delta
    from sessionlake.operators.views import read_live as with_spark

    require_delta(session)
    frame = with_spark(session, config)
    return frame.select(*map(SPARK.named, changelog_of(config).without_states(frame.columns)))


def _own(config: Config) -> str:
    """Return the reader of a pipeline's rows."""
    own = f"read_{config.entry.rows.command}"
    return own if own in globals() else "read"


def _config(reader: str, given: tuple[Any, ...]) -> Config:
    """Return the config that a call names; ConfigError, with the ways to name one, if it names none."""
    of, *names = given or (".",)
    config = getattr(of, "config", of)
    if isinstance(config, Config) and not names:
        return config
    if not isinstance(of, str | Path) or len(names) > 1 or not all(isinstance(name, str) for name in names):
        told = ", ".join(repr(one) if isinstance(one, str) else type(one).__name__ for one in given)
        raise ConfigError(
            f"{reader}: was called with ({told}); pass a config, a Pipeline, a file ('clicks.toml'), or a project and a name "
            "('pipelines', 'clicks'); a Spark session comes first"
        )
    if names:
        return config_named(of, names[0])
    return _only(reader, of) if is_project(of) else load_config(of)


def _only(reader: str, directory: str | Path) -> Config:
    """Return the one config of a directory whose rows a reader reads; ConfigError unless there is exactly one."""
    # Whatever is wrong in the files of others, as `config_named` does.
    configs = read_project(directory).project.configs
    found = {name: config for name, config in configs.items() if reader in (_own(config), "read")}
    if not found:
        load_project(directory)  # a file that can't be read may be the one
        there = ", ".join(f"{name} (sessionlake.{_own(config)})" for name, config in configs.items())
        raise ConfigError(f"{reader}: no pipeline of {str(directory)!r} is for it; there are {there}")
    if len(found) > 1:
        raise ConfigError(
            f"{reader}: {len(found)} pipelines of {str(directory)!r} are for it; pass the name of one, of {', '.join(found)}, after the directory"
        )
    return next(iter(found.values()))
