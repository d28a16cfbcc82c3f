"""The command that shows what a pipeline would make of a stranger's events. It writes nothing, and needs neither Java nor Spark."""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from sessionlake.cli.init import FileFormat, looked_at, of_query, parsed, read_samples
from sessionlake.cli.layout import plain
from sessionlake.cli.progress import progress
from sessionlake.cli.rows import TABLE, print_rows
from sessionlake.cli.shared import console, one_line_errors
from sessionlake.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from sessionlake.config.load import Config
    from sessionlake.preflight.trial import Trial
    from sessionlake.propose import Choice, Measured, MeasuredTable, MeasuredWindows, Sample

_SAMPLE_BYTES = 32 << 20
"""The default of `sessionlake init`, so that both propose the same."""
_TOPIC, _OR_TOPIC = "kafka://", " or kafka://servers/topic"
_TEXTS = (".json", ".jsonl", ".ndjson", ".csv")
_WIDEST, _MOST_CAUSES = 160, 3


@click.command("try")
@click.argument("place", metavar="EVENTS")
@click.option("--key", help="Column of the session key.")
@click.option("--time", help="Column of the event time.")
@click.option(
    "--sql", "query", metavar="QUERY", help="A query of Spark's SQL in place of sessions: its file or its text."
)
@click.option(
    "--window", type=click.Choice(["tumbling", "hopping", "sliding"]), help="Show windows instead of sessions."
)
@click.option("--format", "file_format", type=click.Choice(get_args(FileFormat)), help="Format of the files.")
@one_line_errors
def try_command(
    place: str,
    key: str | None,
    time: str | None,
    query: str | None,
    window: str | None,
    file_format: FileFormat | None,
) -> None:
    """Show the sessions, windows or query results of your own events at once, and how to go on. Writes nothing.

    It prints what it found, the latest results, and the counts of all events. The last line is the command that
    writes the config.
    """
    if place.startswith(_TOPIC):
        raise ConfigError(
            f"try: {place!r} is a topic, of which a trial would not end; run: sessionlake init {shlex.quote(place)} -o events.toml"
        )
    if _is_binary(Path(place)):
        raise SourceError(f"try: {place!r} is no text in UTF-8; pass a file of JSON, CSV or Parquet")
    given = {"--key": key, "--time": time, "--window": window, "--format": file_format, "--sql": query}
    with progress() as shown:
        config, facts = _proposed(place, key, time, query, window, file_format)
        from sessionlake.preflight.trial import Trial, try_all

        trial = Trial()
        with closing(try_all(config, [str(Path(place).resolve())] if Path(place).is_file() else None)) as outcomes:
            for trial in outcomes:
                shown.step(f"computing, {trial.events:,} events so far")
    if not trial.events:
        raise ConfigError(f"try: {place!r} holds no rows; pass a place with events")
    _print(config, facts, trial)
    click.echo(f"\nto write the config: {_next(place, given)}")


def _proposed(
    place: str,
    key: str | None,
    time: str | None,
    query: str | None,
    window: str | None,
    file_format: FileFormat | None,
) -> "tuple[Config, list[tuple[str, str, str]]]":
    """Return the config that `init` proposes, and what it found: names, values and reasons."""
    from sessionlake.propose import config_text

    try:
        if query is not None:
            options = {"--key": key, "--time": time, "--window": window}
            text = of_query(query, (place,), None, None, file_format, _SAMPLE_BYTES, options)
            config = parsed(text, None)
            asked = {"key": ", ".join(config.event.key_columns), "time": config.event.time}
            asked |= {name: getattr(config.section, name, None) for name in ("gap", "size")}
            return config, [(name, str(value), "as the query says") for name, value in asked.items() if value]
        (sample,) = read_samples([place], _SAMPLE_BYTES, file_format, key)
        choice, measured = looked_at(sample, key, time, window, may_ask=False)
    except SourceError as error:
        raise SourceError(f"try: {str(error).removeprefix('init: ').replace(_OR_TOPIC, '')}") from error
    text = config_text(sample, choice, measured, name=None, directory=Path.cwd())
    return parsed(text, None), list(_facts(sample, choice, measured, key, time))


def _is_binary(place: Path) -> bool:
    """Say whether a file that is called a text has zero bytes at its beginning."""
    if place.suffix not in _TEXTS or not place.is_file():
        return False
    with place.open("rb") as file:
        return b"\0" in file.read(4096)


def _facts(
    sample: "Sample",
    choice: "Choice",
    measured: "Measured | MeasuredWindows | MeasuredTable",
    key: str | None,
    time: str | None,
) -> Iterator[tuple[str, str, str]]:
    """Yield what the sample showed: a name, the value and the reason for it."""
    from sessionlake.propose import Measured, MeasuredWindows
    from sessionlake.propose.text import gap_reason, size_reason

    seen = measured.seen
    of = f"{seen.events:,} events" if sample.whole else f"the first {seen.events:,} events"
    yield "key", choice.key, f"{'as given, ' if key else ''}{seen.keys:,} different values in {of}"
    first, last = (f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S}" for us in (seen.first_us, seen.last_us))
    unit = f", numbers in {choice.time_unit}" if choice.time_unit else ""
    yield "time", choice.time, f"{'as given, ' if time else ''}{first} to {last} UTC{unit}"
    if isinstance(measured, Measured):
        yield "gap", measured.gap, gap_reason(measured)
    elif isinstance(measured, MeasuredWindows):
        yield "size", measured.size, size_reason(measured)
    if choice.id is not None:
        yield (
            "id",
            choice.id,
            f"{choice.repeated:.2%} of the rows have an id that came before"
            if choice.repeated
            else "no two rows have the same",
        )


def _print(config: "Config", facts: "list[tuple[str, str, str]]", trial: "Trial") -> None:
    from sessionlake.sources.decoding.decoded import shorten

    names, values = (max(len(fact[at]) for fact in facts) for at in (0, 1))
    for name, value, reason in facts:
        console.print(f"{plain(name):<{names}}  {plain(value):<{values}}  {plain(reason)}", soft_wrap=True)
    words = config.entry.rows
    if trial.results:
        shown = trial.latest.num_rows
        latest = (
            f"the latest {shown} of {trial.results:,} {words.many}"
            if shown < trial.results
            else f"{words.many}, the latest first"
        )
        console.print(f"\n{latest}", soft_wrap=True)
        print_rows(
            trial.latest.column_names, [[*row.values()] for row in trial.latest.to_pylist()], limit=None, form=TABLE
        )
    terms = " + ".join(f"{rows:,} {of}" for of, rows in trial.counts.items())
    console.print(f"\n{trial.events:,} events = {terms}", soft_wrap=True)
    for cause, rows in [*trial.causes.items()][:_MOST_CAUSES]:
        reason, where = trial.examples[cause]
        told = shorten(reason, _WIDEST) + (
            f" ({os.path.relpath(where) if where.startswith('/') else where})" if where else ""
        )
        console.print(f"{rows:,} dead: {plain(told)}", soft_wrap=True)


def _next(place: str, given: Mapping[str, str | None]) -> str:
    """Return the command that writes the config."""
    from sessionlake.propose.sample import name_from

    options = [word for option, value in given.items() if value is not None for word in (option, value)]
    name = name_from(Path(place).resolve().name)
    output = next(
        path for number in count(1) if not Path(path := f"{name}{number if number > 1 else ''}.toml").exists()
    )
    return shlex.join(["sessionlake", "init", place, *options, "-o", output])
