"""The sections [[lookup]] of a config: tables from which each event is enriched (docs/lookups.md)."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from sessionlake.column_names import name_of, title_of
from sessionlake.config.durations import parse_duration
from sessionlake.config.equal_columns import cast_columns, equal_columns
from sessionlake.config.fields import ColumnName, Duration, Section, Texts, as_columns
from sessionlake.config.sources import ColumnType

LOOKUP = "lookup"
FOLDER = "_lookups"
"""The folder of the warehouse with the versions of the tables that are looked up."""
EVENT_TIME = "event_time"


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
    format: Literal["json", "csv", "parquet"] | None = None
    types: dict[ColumnName, ColumnType] = Field(default={})
    """Column types of text files, if inference from the files is not enough."""
    on: Annotated[Texts, AfterValidator(_named_pairs)]
    """The equal columns, as in "user_id = id": that of the event, then that of the table; one name if both are called so.
    A number is compared with a text as `cast(user_id as string)`."""
    columns: list[ColumnName] = Field(min_length=1)
    """The columns of the table that events get."""
    as_of: Literal["latest", "event_time"] = "latest"
    """Which row of a key counts: the one that is there, or the one that was valid at the event's time."""
    valid_from: ColumnName | None = None
    """For `event_time`: the column from which time on a row is valid, inclusive; null is from ever."""
    valid_to: ColumnName | None = None
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
        return {name_of([f"{self.name}_{title_of(column)}"]): column for column in self.columns}

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
