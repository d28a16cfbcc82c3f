"""Rows as every command prints them: a table that fits the terminal, a line of JSON each, or CSV."""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import click

from sessionlake.cli.cells import plain
from sessionlake.cli.layout import laid_out
from sessionlake.cli.shared import console

TABLE, JSON, CSV = FORMATS = ("table", "json", "csv")
FIRST = 100
"""Rows of a table if --limit is not given."""
_Command = TypeVar("_Command", bound=Callable[..., Any])

limit_option = click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"Print no more rows than this.  [default: {FIRST} of a table; all of them as json or csv]",
)


def format_options(
    json_told: str, csv_told: str = "a line for each row, below a line of the column names"
) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command --format and --json; their value is its argument `form`."""

    def added(command: _Command) -> _Command:
        synonym = click.option("--json", "form", flag_value=JSON, help="The same as --format json.")
        return click.option(
            "--format",
            "form",
            type=click.Choice(FORMATS),
            default=TABLE,
            show_default=True,
            help=f"table: fits the terminal; plain text in columns in a pipe. json: {json_told}. csv: {csv_told}.",
        )(synonym(command))

    return added


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    limit: int | None,
    form: str,
    no_rows_line: str = "no rows",
) -> None:
    """Print rows, the first `limit` of them; say so if there are more, and `no_rows_line` if there are none at all."""
    most = at_most(limit, form)
    left = iter(rows)
    shown = left if most is None else islice(left, most)
    count = _print_table(columns, list(shown)) if form == TABLE else _write(columns, shown, form)
    if next(left, None) is not None:
        print_note(f"only the first {most} rows; raise --limit for more", form)
    elif not count:
        print_note(no_rows_line, form)


def at_most(limit: int | None, form: str) -> int | None:
    """Return how many rows are printed at the most; None if all are."""
    return FIRST if limit is None and form == TABLE else limit


def print_note(line: str, form: str) -> None:
    """Print a line about the rows: below a table, else if it is not among them."""
    click.echo(line, err=form != TABLE)


def print_object(found: Mapping[str, Any], form: str, *, headed: bool = True) -> None:
    """Print an object as a line of JSON, or as CSV: a column for each number and text in it, below their names if `headed`."""
    if form == JSON:
        click.echo(json.dumps(plain(found), ensure_ascii=False))
        return
    flat = _flat(found)
    lines = list(_csv(list(flat), [list(flat.values())]))
    click.echo("".join(lines if headed else lines[1:]), nl=False)


def _flat(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's values without lists, those of objects in it under the names of both."""
    flat: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}_{part}": inner for part, inner in value.items()}
        elif not isinstance(value, list):
            flat[name] = value
    return flat


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    told, notes = laid_out(columns, rows, console.width if console.is_terminal else None)
    if rows:
        console.print(told, soft_wrap=True)
    for note in notes:
        console.print(note, style="dim", soft_wrap=True)
    return len(rows)


def _write(columns: Sequence[str], rows: Iterable[Sequence[Any]], form: str) -> int:
    """Write rows as they come; return how many there were."""
    count = 0
    try:
        for line in _csv(columns, rows) if form == CSV else _json(columns, rows):
            sys.stdout.write(line)
            count += 1
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does. Python still flushes its buffer at the end, so the output
        # needs a target.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    return count - (form == CSV)


def _json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    names = _apart(columns)
    for row in rows:
        yield json.dumps(dict(zip(names, map(plain, row), strict=True)), ensure_ascii=False) + "\n"


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield a line of the columns' names, and one for each row."""
    for row in chain([columns], rows):
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow([_field(plain(value)) for value in row])
        yield line.getvalue()


def _field(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else value


def _apart(columns: Sequence[str]) -> list[str]:
    """Return the columns' names, of two alike the second one numbered: an object has a field once."""
    names: list[str] = []
    for column in columns:
        name, number = column, 0
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names
