"""Rows and objects as every command prints them: a table that fits the terminal, a list of JSON, or CSV."""

import csv
import functools
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain, islice
from typing import Any, TypeVar, cast

import click

from sessionlake.cli.layout import laid_out, on_terminal, plain
from sessionlake.cli.shared import console
from sessionlake.config.secrets import hide

TABLE, JSON, CSV = "table", "json", "csv"
FITS = "fits the terminal; plain text in columns in a pipe"
FIRST = 100
"""Rows of a table if --limit is not given."""
_Command = TypeVar("_Command", bound=Callable[..., Any])

limit_option = click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"Print no more rows than this.  [default: {FIRST} of a table; all of them as json or csv]",
)


def format_options(**told: str) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command --format and --json; their value is its argument `form`.

    `told` describes each form; the first one is the default, and `json` is one of them. While a program is printed for, lines
    for people go to standard error.
    """

    def added(command: _Command) -> _Command:
        @functools.wraps(command)
        def called(*arguments: Any, form: str, **given: Any) -> Any:
            with lines_aside() if form in (JSON, CSV) else nullcontext():
                return command(*arguments, form=form, **given)

        option: Any = called
        for flag, settings in _form_options(told):
            option = click.option(flag, "form", **settings)(option)
        return cast("_Command", option)

    return added


def form_parameters(**told: str) -> list[click.Parameter]:
    """Return the options --format and --json of a command that is made of parameters; see `format_options`."""
    return [click.Option([flag, "form"], **settings) for flag, settings in reversed(_form_options(told))]


def _form_options(told: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    words = " ".join(f"{form}: {words}." for form, words in told.items())
    choices = {"type": click.Choice(list(told)), "default": next(iter(told)), "show_default": True, "help": words}
    return [("--json", {"flag_value": JSON, "help": "The same as --format json."}), ("--format", choices)]


@contextmanager
def lines_aside() -> Iterator[None]:
    """Let the console print on standard error while the block runs."""
    before, console.stderr = console.stderr, True
    try:
        yield
    finally:
        console.stderr = before


def row_formats(one: str = "row") -> Callable[[_Command], _Command]:
    """Return `format_options` for rows of one kind, as `one` calls them."""
    return format_options(
        table=FITS,
        json=f"a list with an object for each {one}",
        csv=f"a line for each {one}, below a line of the column names",
    )


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    limit: int | None,
    form: str,
    no_rows_line: str = "no rows",
    headed: bool = True,
) -> None:
    """Print rows, the first `limit` of them; say so if there are more, and `no_rows_line` if there are none at all.

    CSV that is not `headed` has no line of the columns' names.
    """
    most = at_most(limit, form)
    left = iter(rows)
    shown = left if most is None else islice(left, most)
    count = _print_table(columns, list(shown)) if form == TABLE else _write(columns, shown, form, headed=headed)
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


def print_objects(found: Iterable[Mapping[str, Any]], form: str, *, headed: bool = True, between: str = ",\n ") -> None:
    """Print objects as a list of JSON, one on each line; or as CSV: a column for each number and text in them.

    The line of the columns' names is that of the first object, and left out if the lines are not `headed`. JSON has
    `between` from one object to the next.
    """
    if form == JSON:
        _send(map(hide, _listed((json.dumps(plain(one), ensure_ascii=False) for one in found), between)))
        return
    rows = [_flat(one) for one in found]
    lines = list(_csv(list(rows[0]), [list(row.values()) for row in rows])) if rows else []
    _send(map(hide, lines if headed else lines[1:]))


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


def _write(columns: Sequence[str], rows: Iterable[Sequence[Any]], form: str, *, headed: bool) -> int:
    """Write rows as they come; return how many there were."""
    count = 0

    def counted() -> Iterator[Sequence[Any]]:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    _send(islice(_csv(columns, counted()), 0 if headed else 1, None) if form == CSV else _json(columns, counted()))
    return count


def _send(texts: Iterable[str]) -> None:
    """Write texts to standard output as they come; to a terminal without characters that would steer it."""
    for text in map(on_terminal, texts) if sys.stdout.isatty() else texts:
        sys.stdout.write(text)
    sys.stdout.flush()


def _json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    names = _apart(columns)
    return _listed(json.dumps(dict(zip(names, map(plain, row), strict=True)), ensure_ascii=False) for row in rows)


def _listed(objects: Iterable[str], between: str = ",\n ") -> Iterator[str]:
    """Yield the pieces of a list, each object on a line of its own."""
    before = "["
    for text in objects:
        yield f"{before}{text}"
        before = between
    yield "[]\n" if before == "[" else "]\n"


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
