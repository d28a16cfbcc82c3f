"""The sections [[lookup]] of a config: tables from which each event is enriched (docs/lookups.md)."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from sessionlake.config.durations import parse_duration
from sessionlake.config.equal_columns import cast_columns, equal_columns
from sessionlake.config.sections import Columns, Duration, Section, as_columns
from sessionlake.config.source import ColumnType, Format
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    from sessionlake.config.load import Config

LOOKUP = "lookup"
FOLDER = "_lookups"
"""The folder of the warehouse with the versions of the tables that are looked up."""
EVENT_TIME = "event_time"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def _named_pairs(on: str | list[str]) -> str | list[str]:
    wrong = next((text for text in as_columns(on) if equal_columns(text) is None), None)
    if wrong is not None:
        raise ValueError(
            f"{wrong!r} names no columns; write 'id', or 'user_id = id', and backquotes around a name with ="
        )
    return on


class LookupSection(Section):
    """A table that gives each event more columns: those of the row with the event's key in it."""

    name: str
    """Its columns are called `<name>_<column>`."""
    table: str | None = None
    """A pipeline with one row a key: its name in the project, or the path of its config."""
    path: str | None = None
    """Or a Delta table; with `format` a directory of files."""
    shallow_clones: bool = False
    """Whether that Delta table may have files outside of its directory, as for a source."""
    format: Format | None = None
    types: dict[str, ColumnType] = Field(default={})
    """Column types of text files, if inference from the files is not enough."""
    on: Annotated[Columns, AfterValidator(_named_pairs)]
    """The equal columns, as in "user_id = id": that of the event, then that of the table; one name if both are called so.
    A number is compared with a text as `cast(user_id as string)`."""
    columns: list[str] = Field(min_length=1)
    """The columns of the table that events get."""
    as_of: Literal["latest", "event_time"] = "latest"
    """Which row of a key counts: the one that is there, or the one that was valid at the event's time."""
    valid_from: str | None = None
    """For `event_time`: the column from which time on a row is valid, inclusive; null is from ever."""
    valid_to: str | None = None
    """For `event_time`: the column until which time a row is valid, exclusive; null is for ever. Without it, until the key's next row."""
    missing: Literal["null", "dead_letter"] = "null"
    """What an event gets that finds no row: nulls, or a dead letter."""
    refresh: Duration = "1 minute"
    """How often a newer version of the table is looked for."""
    max_rows: int = Field(default=10_000_000, ge=1)
    """A version with more rows is not used."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The equal columns of event and table."""
        return tuple(pair for text in as_columns(self.on) if (pair := equal_columns(text)) is not None)

    @property
    def casts(self) -> tuple[tuple[bool, bool], ...]:
        """For each of `pairs` which of the two are compared as texts."""
        return tuple(map(cast_columns, as_columns(self.on)))

    @property
    def of_event(self) -> tuple[str, ...]:
        """The columns of the event that are compared."""
        return tuple(left for left, _ in self.pairs)

    @property
    def of_table(self) -> tuple[str, ...]:
        """The columns of the table that are compared."""
        return tuple(right for _, right in self.pairs)

    @property
    def names(self) -> dict[str, str]:
        """The columns that events get, each with its name in the table."""
        return {f"{self.name}_{column}": column for column in self.columns}

    @property
    def is_timed(self) -> bool:
        """Whether the row counts that was valid at the event's time."""
        return self.as_of == EVENT_TIME

    @property
    def refresh_us(self) -> int:
        """Microseconds between two looks for a newer version."""
        return parse_duration(self.refresh)

    @property
    def bound(self) -> dict[str, Any]:
        """The settings that give its columns their meaning: to change one is to rebuild."""
        return {
            "on": [list(pair) for pair in self.pairs],
            "as_of": self.as_of,
            "valid_from": self.valid_from,
            "valid_to": self.valid_to,
        }


def live_lookups(sections: Sequence[LookupSection]) -> dict[str, Any]:
    """Return the settings that may change from batch to batch: what events get that find no row, and the columns that are looked up."""
    if not sections:
        return {}
    return {
        "missing": {section.name: section.missing for section in sections},
        "looked_up": [name for section in sections for name in section.names],
    }


def checks_of_lookups(sides: Iterable["Config"]) -> Iterator[Callable[[], None]]:
    """Yield the checks of the lookups of all inputs; each raises ConfigError."""
    seen: list[str] = []
    for side in sides:
        for number, section in enumerate(side.lookup):
            yield partial(_check, side, section, tuple(seen))
            yield partial(_check_columns, side, section, side.lookup[:number])
            seen.append(section.name.lower())


def _check(side: "Config", section: LookupSection, before: Sequence[str]) -> None:
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


def _check_columns(side: "Config", section: LookupSection, above: Sequence[LookupSection]) -> None:
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


def _check_on(side: "Config", section: LookupSection, at: str) -> None:
    for left, _ in section.pairs:
        if left in side.event.columns:
            raise ConfigError(
                f"{at}.on: {left!r} is computed, and lookups come before columns are computed; name a column of the source, "
                "or of a lookup above"
            )


def _check_time(side: "Config", section: LookupSection, at: str) -> None:
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
