"""The command that looks at events, and at a query if there is one, and writes a config for them."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from sessionlake.cli.progress import progress
from sessionlake.cli.shared import one_line_errors
from sessionlake.config.file import PROJECT_FILE
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    from sessionlake.config.load import Config
    from sessionlake.propose import Choice, Measured, MeasuredTable, MeasuredWindows, Sample
    from sessionlake.propose.query import Pipeline
    from sessionlake.sources.columns import EventColumns

FileFormat = Literal["json", "csv", "parquet", "text"]


@click.command("init")
@click.argument("samples", metavar="SAMPLE", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write; it must not exist.  [default: standard output]",
)
@click.option(
    "--sql",
    "query",
    metavar="QUERY",
    help="A query of Spark's SQL to make a pipeline of: its file, its text, or - for standard input. For a join pass two samples, in the order of FROM and JOIN.",
)
@click.option("--key", help="Column of the session key.")
@click.option("--time", help="Column of the event time.")
@click.option(
    "--window", type=click.Choice(["tumbling", "hopping", "sliding"]), help="Propose windows instead of sessions."
)
@click.option("--table", is_flag=True, help="Propose a table of the latest row of each key instead of sessions.")
@click.option("--name", help="Name of the pipeline.  [default: the name of the file to write, otherwise of the sample]")
@click.option(
    "--format", "file_format", type=click.Choice(["json", "csv", "parquet", "text"]), help="Format of the files."
)
@click.option(
    "--sample-mb", type=click.IntRange(min=1), default=32, show_default=True, help="Size of the sample, in memory."
)
@one_line_errors
def init_command(
    samples: tuple[str, ...],
    output: Path | None,
    query: str | None,
    key: str | None,
    time: str | None,
    window: str | None,
    name: str | None,
    file_format: FileFormat | None,
    sample_mb: int,
    *,
    table: bool,
) -> None:
    """Look at a file, directory, Delta table or kafka://servers/topic, and write a commented config for it."""
    if output is not None and output.exists():
        raise ConfigError(f"-o: {str(output)!r} is there already; pass another file, or remove it")
    if output is not None and output.name == PROJECT_FILE:
        raise ConfigError(
            f"-o: {str(output)!r} would have the defaults of a project, not a pipeline; pass another file"
        )
    if table and window is not None:
        raise ConfigError(f"--table: can't be used with --window {window}; pass one of them")
    if query is not None:
        given = {"--key": key, "--time": time, "--window": window, "--table": table or None}
        text = of_query(query, samples, output, name, file_format, sample_mb << 20, given)
    elif len(samples) > 1:
        raise ConfigError(f"SAMPLE: {samples[1]!r} is a second one; pass one, or a join by --sql")
    else:
        text = _of_sample(samples[0], output, key, time, window, name, file_format, sample_mb << 20, table=table)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("x") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"-o: {str(output)!r} can't be written ({error.strerror}); pass another file") from error
    _warn_of_own_files(text, output)
    click.echo(f"{output}: {_of_project(output)}read it, then `sessionlake run {os.path.relpath(output)} --once`")


def _of_sample(
    place: str,
    output: Path | None,
    key: str | None,
    time: str | None,
    window: str | None,
    name: str | None,
    file_format: FileFormat | None,
    most_bytes: int,
    *,
    table: bool,
) -> str:
    """Return the config that a sample suggests."""
    from sessionlake.propose import config_text

    (seen,) = read_samples([place], most_bytes, file_format, key)
    choice, measured = looked_at(seen, key, time, window, table=table)
    text = config_text(seen, choice, measured, name=_name(name, output), directory=_directory(output))
    parsed(text, output)
    return text


def looked_at(
    seen: "Sample",
    key: str | None,
    time: str | None,
    window: str | None,
    *,
    table: bool = False,
    may_ask: bool = True,
) -> "tuple[Choice, Measured | MeasuredWindows | MeasuredTable]":
    """Return a sample's columns, and its measures for windows of a kind, for a table or else for sessions.

    A user at a terminal is asked for columns that are not clear if `may_ask`; otherwise ConfigError.
    """
    from sessionlake.sources.columns import EventColumns

    choice = _chosen(seen, key, time, may_ask=may_ask and _may_ask())
    columns = EventColumns(choice.key, choice.time, choice.time_form, choice.id, (), seen.types)
    with progress() as shown:
        shown.step(
            f"2 of 2: measuring {'windows' if window else 'rows' if table else 'sessions'} of {seen.rows:,} rows"
        )
        measured = _measured(seen, choice, columns, window, table=table)
    _require_events(seen, choice, measured)
    return choice, measured


def _require_events(seen: "Sample", choice: "Choice", measured: "Measured | MeasuredWindows | MeasuredTable") -> None:
    """Raise ConfigError for columns with which no row would be an event, as `check` would."""
    if measured.seen.events:
        return
    if measured.seen.ahead:
        raise ConfigError(
            f"--time: {choice.time!r} is more than an hour ahead of the clock in each row of the sample; pass another column, or correct this machine's clock"
        )
    what = "time" if seen.column(choice.time).null_count == seen.rows else "key"
    raise ConfigError(
        f"--{what}: {getattr(choice, what)!r} has no {'time' if what == 'time' else 'value'} in any row of the sample; pass another column"
    )


def of_query(
    query: str,
    places: tuple[str, ...],
    output: Path | None,
    name: str | None,
    file_format: FileFormat | None,
    most_bytes: int,
    given: Mapping[str, object],
) -> str:
    """Return the config of a query. InvalidConfigError has the place in the query of each problem, of the config's own checks, too."""
    from sessionlake.propose.query import pipeline_of

    wrong = next((option for option, value in given.items() if value is not None), None)
    if wrong is not None:
        raise ConfigError(f"{wrong}: can't be used with --sql, because the query says it; leave it out")
    file, text = _read_query(query)
    samples = read_samples(places, most_bytes, file_format)
    with progress() as shown:
        shown.step(f"2 of 2: measuring {sum(sample.rows for sample in samples):,} rows")
        made = pipeline_of(
            text,
            file,
            samples,
            name=_name(name, output) or samples[0].name,
            directory=_directory(output),
            output="CONFIG" if output is None else os.path.relpath(output),
        )
    _check(made, output)
    return made.text


def _read_query(query: str) -> tuple[str, str]:
    """Return the name of a query's file in errors, and its text."""
    if query == "-":
        return "standard input", sys.stdin.read()
    if query.lower().lstrip().startswith(("select ", "select\n", "with ")) and not Path(query).exists():
        return "--sql", query
    try:
        return query, Path(query).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"--sql: {query!r} can't be read ({error.strerror}); pass the path of a query, or - for standard input"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--sql: {query!r} is no UTF-8 ({error}); save it as UTF-8") from error


def _check(made: "Pipeline", output: Path | None) -> None:
    """Raise InvalidConfigError, with places in the query, for all that the checks of `sessionlake check` refuse."""
    from sessionlake.config.problems import InvalidConfigError, problems_of
    from sessionlake.preflight.checks import problems_of_pipeline
    from sessionlake.preflight.needs import Needs

    try:
        problems = problems_of_pipeline(parsed(made.text, output), Needs(source=True))
    except ConfigError as error:
        problems = problems_of(error)
    if problems:
        raise InvalidConfigError(made.located(problems))


def read_samples(
    places: "tuple[str, ...] | list[str]", most_bytes: int, file_format: FileFormat | None, key: str | None = None
) -> "list[Sample]":
    """Read the beginning of places."""
    from sessionlake.propose import read_sample

    with progress() as shown:
        shown.step(f"1 of 2: reading a sample of {' and '.join(places)}")
        return [read_sample(place, most_bytes, file_format, key) for place in places]


def parsed(text: str, output: Path | None) -> "Config":
    """Return the config of a proposal as its project reads it, if it is in one. Problems have no place in a file that is not written."""
    from sessionlake.config.file import ConfigFile, Text, parse_toml
    from sessionlake.config.load import config_of
    from sessionlake.config.problems import InvalidConfigError, problems_of
    from sessionlake.config.project import problems_with

    path = str(output or "the proposal")
    file = ConfigFile.of(Text(path, text, parse_toml(text, path)))
    try:
        config, problems = config_of(file), problems_with(file)
    except ConfigError as error:
        problems = problems_of(error)
    if problems:
        raise InvalidConfigError(
            [replace(one, file=None, line=None, column=None) if one.file == path else one for one in problems]
        )
    return config


def _warn_of_own_files(text: str, output: Path) -> None:
    """Warn if a config lies in the directory of its events, all of whose files are read."""
    sources = [side.source for side in parsed(text, output).inputs.values()]
    if any(source.entry.opens_files and _directory(output).is_relative_to(source.path) for source in sources):
        click.echo(
            f"sessionlake: warning: {output} lies in the directory of the events, whose files are all read, this one and the tables too; "
            "move the events into a directory of their own, then start init again",
            err=True,
        )


def _of_project(output: Path) -> str:
    """Return words about the project of a written config, and the place of its tables; empty if it is in none."""
    from sessionlake.config.load import load_config

    config = load_config(output)
    if not config.in_project:
        return ""
    place = config.pipeline.warehouse
    tables = place if "://" in place else os.path.relpath(place)
    return f"a pipeline of the project {os.path.relpath(output.parent)}, with its tables in {tables}; "


def _name(name: str | None, output: Path | None) -> str | None:
    from sessionlake.propose import name_from

    return name or (None if output is None else name_from(output.name))


def _directory(output: Path | None) -> Path:
    return (output.parent if output is not None else Path()).resolve()


def _measured(
    seen: "Sample", choice: "Choice", columns: "EventColumns", window: str | None, *, table: bool
) -> "Measured | MeasuredWindows | MeasuredTable":
    from sessionlake.propose import measure, measure_table, measure_windows

    if table:
        return measure_table(seen, choice, columns)
    return measure(seen, columns) if window is None else measure_windows(seen, columns, window)


def _chosen(seen: "Sample", key: str | None, time: str | None, *, may_ask: bool) -> "Choice":
    """Return the columns; the user may be asked for those that are not clear."""
    from sessionlake.propose import choose

    while True:
        try:
            return choose(seen, key, time)
        except ConfigError as error:
            said = str(error)
            what = "time" if said.startswith("--time: which") else "key" if said.startswith("--key: which") else None
            if what is None or not may_ask:
                raise
            click.echo(said.split(";", maxsplit=1)[0].removeprefix(f"--{what}: "), err=True)
            given = click.prompt(f"{what} column", type=click.Choice(list(seen.types)), show_choices=True, err=True)
            key, time = (given, time) if what == "key" else (key, given)


def _may_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
