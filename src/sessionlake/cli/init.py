"""The command that looks at events and writes a config for them."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from sessionlake.cli.progress import progress
from sessionlake.cli.shared import one_line_errors
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    from sessionlake.propose import Choice, Measured, MeasuredTable, MeasuredWindows, Sample
    from sessionlake.sources.columns import EventColumns


@click.command("init")
@click.argument("sample", metavar="SAMPLE")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write; it must not exist.  [default: standard output]",
)
@click.option("--key", help="Column of the session key.")
@click.option("--time", help="Column of the event time.")
@click.option(
    "--window", type=click.Choice(["tumbling", "hopping", "sliding"]), help="Propose windows instead of sessions."
)
@click.option("--table", is_flag=True, help="Propose a table of the latest row of each key instead of sessions.")
@click.option("--name", help="Name of the pipeline.  [default: the name of the file to write, otherwise of the sample]")
@click.option("--format", "file_format", type=click.Choice(["json", "csv", "parquet"]), help="Format of the files.")
@click.option(
    "--sample-mb", type=click.IntRange(min=1), default=32, show_default=True, help="Size of the sample, in memory."
)
@one_line_errors
def init_command(
    sample: str,
    output: Path | None,
    key: str | None,
    time: str | None,
    window: str | None,
    name: str | None,
    file_format: Literal["json", "csv", "parquet"] | None,
    sample_mb: int,
    *,
    table: bool,
) -> None:
    """Look at a file, directory, Delta table or kafka://servers/topic, and write a commented config for it."""
    from sessionlake.config.file import parse_toml
    from sessionlake.config.load import parse_config
    from sessionlake.propose import config_text, name_from, read_sample
    from sessionlake.sources.columns import EventColumns

    if output is not None and output.exists():
        raise ConfigError(f"-o: {str(output)!r} is there already; pass another file, or remove it")
    if table and window is not None:
        raise ConfigError(f"--table: can't be used with --window {window}; pass one of them")
    with progress() as shown:
        shown.step(f"1 of 2: reading a sample of {sample}")
        seen = read_sample(sample, sample_mb << 20, file_format)
    choice = _chosen(seen, key, time)
    columns = EventColumns(choice.key, choice.time, choice.time_unit, choice.id, (), seen.types)
    directory = (output.parent if output is not None else Path()).resolve()
    with progress() as shown:
        shown.step(
            f"2 of 2: measuring {'windows' if window else 'rows' if table else 'sessions'} of {seen.rows:,} rows"
        )
        measured = _measured(seen, choice, columns, window, table=table)
    named = name or (None if output is None else name_from(output.name))
    text = config_text(seen, choice, measured, name=named, directory=directory)
    parse_config(parse_toml(text, output or "the proposal"), directory)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("x") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"-o: {str(output)!r} can't be written ({error.strerror}); pass another file") from error
    click.echo(f"{output}: read it, then `sessionlake run {os.path.relpath(output)} --once`")


def _measured(
    seen: "Sample", choice: "Choice", columns: "EventColumns", window: str | None, *, table: bool
) -> "Measured | MeasuredWindows | MeasuredTable":
    from sessionlake.propose import measure, measure_table, measure_windows

    if table:
        return measure_table(seen, choice, columns)
    return measure(seen, columns) if window is None else measure_windows(seen, columns, window)


def _chosen(seen: "Sample", key: str | None, time: str | None) -> "Choice":
    """Return the columns; on a terminal the user is asked for those that are not clear."""
    from sessionlake.propose import choose

    while True:
        try:
            return choose(seen, key, time)
        except ConfigError as error:
            said = str(error)
            what = "time" if said.startswith("--time: which") else "key" if said.startswith("--key: which") else None
            if what is None or not _may_ask():
                raise
            click.echo(said.split(";", maxsplit=1)[0].removeprefix(f"--{what}: "), err=True)
            given = click.prompt(f"{what} column", type=click.Choice(list(seen.types)), show_choices=True, err=True)
            key, time = (given, time) if what == "key" else (key, given)


def _may_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
