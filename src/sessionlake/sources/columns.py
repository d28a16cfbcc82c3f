"""Which columns of the source are read, and as which Arrow types."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from sessionlake.column_names import titles_of
from sessionlake.columnar.keys import key_parts
from sessionlake.columnar.time_formats import TimeFormat
from sessionlake.errors import ConfigError
from sessionlake.warehouse import schemas

if TYPE_CHECKING:
    from sessionlake.config.sections import EventSection

TIMESTAMP = schemas.TIME
TIME_UNITS = ("s", "ms", "us", "ns")


def time_form(event: "EventSection") -> str | TimeFormat | None:
    """Return the unit of times that are numbers, or the format of texts; None for timestamps and ISO 8601."""
    return event.time_unit if event.time_format is None else TimeFormat(event.time_format)


def check_time_format(at: str, text: str) -> None:
    """Raise a ConfigError, of the key `at`, for a format of times with letters that are not read."""
    try:
        TimeFormat(text).check()
    except ValueError as error:
        raise ConfigError(f"{at}: {text!r}: {error}") from error


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Name the key, time, id and the source's columns that the operator reads (`inputs`), with the pinned type of each.

    Without a key all events have the empty text as key; further keys make it a JSON array of all texts.
    `time_unit` is the unit of epoch numbers, or the format of texts, None for timestamps and ISO 8601 text. Raises ValueError for an unknown unit or a
    column without a type.
    """

    key: str | None
    time: str | None
    """If no column is named, an event's time is its batch's clock."""
    time_unit: str | TimeFormat | None
    id: str | None
    inputs: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    ordered: bool = False
    """Whether the rows' places in the source's order are needed besides the columns (`Decoder.decode_in_order`)."""
    further_keys: tuple[str, ...] = ()
    """Further columns of the key, after `key`, in that order."""
    further_ids: tuple[str, ...] = ()
    """Further columns of the id, after `id`, in that order."""
    computed: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Columns that are computed, with their types. Those of key, time and id may be; the source's columns of these names are hidden."""
    asked: tuple[str, ...] = ()
    """The source's columns that `where` reads. They come first, so that a wrong type among them is reported."""
    also: tuple[str, ...] = ()
    """The source's columns that a computed key, time and id read."""
    compared: tuple[str, ...] = ()
    """The source's columns that lookups compare."""
    looked_up: Mapping[str, str] = field(default_factory=dict)
    """Columns that lookups add to the source's, each with its lookup's name."""
    canonical: tuple[str, ...] = ()
    """Columns that identify events, if their types were inferred: a text read as a whole number must be the number's own text, so `007` is not 7."""
    whole: bool = False
    """Whether rows are read with all columns of the source besides the needed ones (`Rows.whole`)."""

    def __post_init__(self) -> None:
        if isinstance(self.time_unit, str) and self.time_unit not in TIME_UNITS:
            raise ValueError(f"time_unit {self.time_unit!r}: write one of {', '.join(TIME_UNITS)}")
        untyped = [name for name in self.needed if name not in self.types]
        if untyped:
            raise ValueError(f"no type for column {', '.join(untyped)}: add it to types")

    @property
    def needed(self) -> tuple[str, ...]:
        """List the read columns of the source, once each: `asked`, key, time and id, `inputs`, `also` and `compared`, in this order."""
        own = (self.key, *self.further_keys, self.time, self.id, *self.further_ids)
        first = (name for name in own if name is not None and name not in self.computed)
        return tuple(dict.fromkeys((*self.asked, *first, *self.inputs, *self.also, *self.compared)))

    @property
    def read(self) -> "EventColumns":
        """The same without looked-up columns: the columns that a source has to give."""
        if not self.looked_up:
            return self
        asked, inputs, also = (
            tuple(name for name in names if name not in self.looked_up)
            for names in (self.asked, self.inputs, self.also)
        )
        hidden = {**self.computed, **{name: self.types[name] for name in self.looked_up}}
        return replace(self, asked=asked, inputs=inputs, also=also, computed=hidden, looked_up={})

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of a key of several columns; none for a key of a single column."""
        return (self.key, *self.further_keys) if self.key is not None and self.further_keys else ()

    @property
    def key_titles(self) -> tuple[str, ...]:
        """The titles of `key_columns`, by which results have them."""
        return titles_of(self.key_columns)

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns of the id; none if events have none."""
        return () if self.id is None else (self.id, *self.further_ids)

    def key_parts(self, keys: pa.Array) -> dict[str, pa.Array]:
        """Return, by title, the texts of a key's columns; nothing for a key of a single column."""
        names = self.key_titles
        return dict(zip(names, key_parts(keys, len(names)), strict=True)) if names else {}

    @property
    def lone_key(self) -> str | None:
        """The key if it is text that is read as nothing but the key, or compared, and so may come as a dictionary; else None."""
        if self.key is None or self.key in self.computed or self.further_keys or self.types[self.key] != pa.string():
            return None
        if self.key in (self.time, self.id, *self.further_ids, *self.asked, *self.inputs, *self.also):
            return None
        return self.key

    @property
    def schema(self) -> pa.Schema:
        """Give the needed columns in their pinned types."""
        return pa.schema([(name, self.types[name]) for name in self.needed])


def normal_type(type_: pa.DataType) -> pa.DataType:
    """Return the type in which a typed source's column is read: widest numbers, times in UTC microseconds."""
    if pa.types.is_timestamp(type_):
        return TIMESTAMP
    if pa.types.is_integer(type_):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(type_) else type_
