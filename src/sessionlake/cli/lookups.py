"""The commands that look up a key's rows, one for each name in the operators' entries."""

import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import click

from sessionlake.cli.operands import CONFIG, config_argument
from sessionlake.cli.progress import progress
from sessionlake.cli.rows import limit_option, print_rows, row_formats
from sessionlake.cli.shared import one_line_errors
from sessionlake.config.joint_keys import named_key
from sessionlake.config.load import Config, load_config
from sessionlake.config.operators import RowNames
from sessionlake.config.times import parse_time
from sessionlake.errors import ConfigError, NoBatchesError

if TYPE_CHECKING:
    from sessionlake.serve.queries import Answer


def lookup_command(names: RowNames) -> click.Command:
    """Return the command that looks up a key's rows."""
    earliest, latest = names.times
    options = (
        config_argument(CONFIG),
        click.option("--key", "keys", required=True, multiple=True, help=f"The {names.key} to look up; - reads it from a line of standard input. Of a key of several columns COLUMN=TEXT, once for each column or for the first ones."),
        click.option("--from", "from_text", metavar="TIME", help=f"{earliest}: an ISO date or time in UTC."),
        click.option("--to", "to_text", metavar="TIME", help=f"{latest}: an ISO date or time in UTC."),
        limit_option,
        row_formats(names.one),
    )  # fmt: skip
    function = one_line_errors(partial(_look_up, names.command))
    for option in reversed(options):
        function = option(function)
    return click.command(names.command, help=names.summary)(function)


def _look_up(
    command: str,
    config_path: str,
    keys: tuple[str, ...],
    from_text: str | None,
    to_text: str | None,
    limit: int | None,
    form: str,
) -> None:
    config = load_config(config_path)
    _check_command(config, command, config_path)
    from_us = None if from_text is None else parse_time(from_text, "--from")
    to_us = None if to_text is None else parse_time(to_text, "--to")
    key, prefix = _asked_key(config, keys)
    from sessionlake.serve.queries import answer_key

    with ExitStack() as stack:
        with progress() as shown:
            shown.step("reading the tables")
            answer = stack.enter_context(answer_key(config, key, from_us, to_us, prefix))
        no_rows_line = _no_rows_line(config, answer, key, prefix, in_times=(from_us, to_us) != (None, None))
        print_rows(answer.columns, answer.rows, limit=limit, form=form, no_rows_line=no_rows_line)


def _check_command(config: Config, command: str, config_path: str) -> None:
    """Raise ConfigError that names the command to use if the pipeline computes something else."""
    names = config.entry.rows
    if names.command != command:
        raise ConfigError(
            f"{command}: this pipeline computes {names.computed}; use: sessionlake {names.command} {config_path} --key KEY"
        )


def _asked_key(config: Config, keys: tuple[str, ...]) -> tuple[str | None, str]:
    """Return the key to look up; None, and the beginning of several, if leading columns alone are given."""
    first, columns = keys[0], config.key_columns
    if len(keys) == 1 and first == "-":
        return sys.stdin.readline().removesuffix("\n").removesuffix("\r"), ""
    # The text of a key of several columns begins with a bracket, and the name of none of its columns does.
    if len(keys) == 1 and (not columns or first.startswith("[")):
        return first, ""
    if not columns:
        raise ConfigError(f"--key: {keys[1]!r} is a second key, and the command looks up one; give one")
    parts: dict[str, str] = {}
    for text in keys:
        name, named, value = text.partition("=")
        if not named:
            told = " ".join(f"--key {column}={text if column == columns[0] else 'TEXT'}" for column in columns)
            raise ConfigError(f"--key: {text!r} names no column of the key; write {told}, or the first ones of them")
        if name in parts:
            raise ConfigError(f"--key: {name!r} is given twice; give each column once")
        parts[name] = value
    return named_key(parts, columns, "--key")


def _no_rows_line(config: Config, answer: "Answer", key: str | None, prefix: str, *, in_times: bool) -> str:
    """Return the line that says that a key has no rows; NoBatchesError before the first batch."""
    if answer.batch_id is None:
        raise NoBatchesError(
            f"pipeline.warehouse: {config.pipeline.warehouse!r} has no batches yet; run `sessionlake run` first"
        )
    names = config.entry.rows
    final = "final " if config.section.facts.shown == "final" else ""
    times = " in these times" if in_times else ""
    of = f"keys that begin with {prefix!r}" if key is None else f"the key {key!r}"
    line = f"no {final}{names.one if names.one_per_key else names.many} of {of}{times} as of batch {answer.batch_id}"
    column, named, text = (key or "").partition("=")
    if named and any(columns == (column,) for columns in config.keys.values()):
        return f"{line}; a key of one column is written without its name: --key {text}"
    return line
