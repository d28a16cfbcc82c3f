"""Parts that all commands share: the console, one-line errors, a Spark session, times and durations."""

import errno
import functools
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console

from sessionlake.cli.failures import error_lines
from sessionlake.cli.stop import Command, begun_command
from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.config.secrets import hide
from sessionlake.errors import ConfigError, SessionlakeError, first_line
from sessionlake.extras import require_versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A pipe has no width: 80 columns would break the tables, and a line of a log stays one. Markup is off because printed
# values may hold a user's texts.
console = Console(
    highlight=False,
    markup=False,
    emoji=False,
    width=None if sys.stdout.isatty() else 140,
    soft_wrap=not sys.stdout.isatty(),
)

LITTLE_BYTES = 32 << 20
"""Up to this size of all tables a job is through sooner if Java compiles little (`engine.spark.LITTLE_JAVA`).

`compact` of 2 MB took 48 s of CPU in place of 86, of 107 MB 171 in place of 96 (docs/decisions/0010-the-drivers-java.md)."""


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """End a failing command with one line; for a wrong config, with a line for each problem.

    A stopped command names itself. The exit code is that of the error's class or cause. `sessionlake --traceback`
    prints the trace before the line.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        context = click.get_current_context(silent=True)
        if context is not None:
            begun_command(Command(context.info_name or "", context.params), traced=wants_traceback())
        try:
            require_versions()
            command(*args, **kwargs)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 (each library has its own)
            end_with(error, kwargs.get("config_path"))
        except BaseException as error:
            # Libraries in Rust end so, for example if no thread or file can be had. It is no Exception.
            if type(error).__name__ != "PanicException":
                raise
            end_with(_of_panic(error), kwargs.get("config_path"))

    return wrapped


def _of_panic(error: BaseException) -> Exception:
    said = first_line(error)
    if os.strerror(errno.EMFILE) in said:
        return OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return SessionlakeError(f"a library ended: {said}")


def end_with(error: Exception, config: str | None = None) -> NoReturn:
    """End the command with an error's lines and exit code; `config` is the file that it was given."""
    if wants_traceback():
        click.echo(hide("".join(traceback.format_exception(error))), err=True)
    lines, code = error_lines(error, config)
    for line in lines:
        click.echo(f"sessionlake: {hide(' '.join(line.split()))}", err=True)
    sys.exit(code)


def wants_traceback() -> bool:
    """Say whether the command line was called with --traceback."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get("traceback"))


def open_session(
    config: Config,
    *,
    driver_memory: str = "4g",
    little_java: bool = False,
    conf: Mapping[str, str] | None = None,
    name: str | None = None,
    metastore: bool = False,
) -> "SparkSession":
    """Start Spark with as many shuffle partitions as there are shards, and a JVM for jobs or for a stream.

    `name` is the application's after "sessionlake-", the pipeline's if there is none. With `metastore` its catalog is one
    that lasts (`build_session`).
    """
    require_versions("spark")
    from sessionlake.cli.progress import paused, progress
    from sessionlake.engine.spark import build_session
    from sessionlake.jars import find_jars
    from sessionlake.jars.java import check_java
    from sessionlake.observe.lineage import listener_conf

    settings = {**listener_conf(config), **(conf or {})}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_java()
        with paused():
            find_jars()  # a fetch shows its own progress
    with progress() as shown:
        shown.step("starting Spark")
        return build_session(
            f"sessionlake-{name or config.pipeline.name}",
            shuffle_partitions=config.pipeline.shards,
            driver_memory=driver_memory,
            little_java=little_java,
            metastore=metastore,
            extra_conf=settings,
        )


def has_little_data(config: Config) -> bool:
    """Say whether a pipeline's tables are so small that a job ends before Java's compiling for throughput has paid back.

    Of tables that can't be read without Spark nobody knows, and Java compiles as it comes.
    """
    from sessionlake.errors import LakeError
    from sessionlake.warehouse import schemas
    from sessionlake.warehouse.lake import Lake

    lake, left = Lake.of(config), LITTLE_BYTES
    try:
        for name in (*lake.changelog.tables, *schemas.SHARED):
            if left >= 0 and lake[name].exists():
                left -= lake[name].size()[1]
    except LakeError:
        return False
    return left >= 0


def show_warnings(warnings: list[str]) -> None:
    """Print warnings, one line each."""
    for warning in warnings:
        click.echo(f"sessionlake: warning: {warning}", err=True)


def format_time(micros: int | None) -> str:
    """Return a UTC time for people."""
    return "-" if micros is None else f"{datetime.fromtimestamp(micros / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def positive_duration(text: str, option: str) -> float:
    """Return the seconds of an option such as "5 seconds"; ConfigError if it is none, or zero."""
    micros = parse_duration(text, option)
    if micros == 0:
        raise ConfigError(f"{option}: {text!r} must be longer than zero; write for example '5 seconds'")
    return micros / 1e6
