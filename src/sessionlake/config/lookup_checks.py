"""The checks of [[lookup]]: each by itself, beside the others of its input, and beside the events."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from sessionlake.config.config import Config
from sessionlake.config.lookups import LookupSection
from sessionlake.errors import ConfigError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def checks_of_lookups(sides: Iterable[Config]) -> Iterator[Callable[[], None]]:
    """Yield the checks of the lookups of all inputs; each raises ConfigError."""
    seen: list[str] = []
    for side in sides:
        for number, section in enumerate(side.lookup):
            yield partial(_check, side, section, tuple(seen))
            yield partial(_check_columns, side, section, side.lookup[:number])
            seen.append(section.name.lower())


def _check(side: Config, section: LookupSection, before: Sequence[str]) -> None:
    at = f"{side.lookup_at}.{section.name}"
    if not _NAME.fullmatch(section.name):
        raise ConfigError(
            f"{at}.name: {section.name!r} can't begin a column's name; write letters, digits and _, a letter first"
        )
    if section.name.lower() in before:
        raise ConfigError(f"{at}.name: {section.name!r} is the name of another lookup; write another one")
    if (section.table is None) == (section.path is None):
        raise ConfigError(f"{at}.path: write table, the name of a pipeline, or path, and one of the two")
    if section.table is not None and section.format is not None:
        raise ConfigError(f"{at}.format: goes with path only; remove it")
    if section.types and section.format not in ("json", "csv"):
        raise ConfigError(f"{at}.types: goes with format 'json' or 'csv' only; remove it")
    if side.event.time in section.names:
        raise ConfigError(
            f"{side.event_at}.time: {side.event.time!r} is looked up, and an event's time can't be; name a column of the source"
        )
    computed = {name.lower() for name in side.event.columns}
    hidden = next((name for name in section.names if name.lower() in computed), None)
    if hidden is not None:
        raise ConfigError(f"{at}.columns: {hidden!r} is a column of {side.event_at}.columns, too; rename one of them")
    _check_on(side, section, at)
    _check_time(side, section, at)


def _check_columns(side: Config, section: LookupSection, above: Sequence[LookupSection]) -> None:
    """Check the columns of a lookup beside each other, and beside those of the lookups above it."""
    at = f"{side.lookup_at}.{section.name}"
    # Tables tell columns apart by more than upper and lower case.
    known = {name.lower(): one.name for one in above for name in one.names}
    for column in section.columns:
        name = f"{section.name}_{column}"
        if known.get(name.lower(), section.name) != section.name:
            raise ConfigError(
                f"{at}.columns: {name!r} is a column of lookup {known[name.lower()]!r}, too; give one of the two another name"
            )
        if name.lower() in known:
            raise ConfigError(f"{at}.columns: {column!r} is there twice, perhaps in upper and lower case; name it once")
        known[name.lower()] = section.name
    found_by = {name: one for one in reversed(side.lookup) for name in one.names}
    for left in section.of_event:
        if (other := found_by.get(left)) is not None and other not in above:
            raise ConfigError(
                f"{at}.on: {left!r} is a column of lookup {other.name!r}, which is not above this one; move it there, or give it another name"
            )


def _check_on(side: Config, section: LookupSection, at: str) -> None:
    for left, _ in section.pairs:
        if left in side.event.columns:
            raise ConfigError(
                f"{at}.on: {left!r} is computed, and lookups come before columns are computed; name a column of the source, "
                "or of a lookup above"
            )


def _check_time(side: Config, section: LookupSection, at: str) -> None:
    if not section.is_timed:
        told = next((name for name in ("valid_from", "valid_to") if getattr(section, name) is not None), None)
        if told is not None:
            raise ConfigError(f"{at}.{told}: goes with as_of = 'event_time' only; remove it, or write that")
        return
    if section.valid_from is None:
        raise ConfigError(
            f"{at}.valid_from: is missing, and as_of is 'event_time'; name the column from which on a row is valid"
        )
    if side.event.time is None or side.event.time in side.event.columns:
        raise ConfigError(
            f"{at}.as_of: 'event_time' needs a column of the source in {side.event_at}.time; write 'latest'"
        )
