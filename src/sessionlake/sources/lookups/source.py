"""A source whose rows also have its lookups' columns."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa

from sessionlake.columnar.column_types import stored_text, stored_type
from sessionlake.config.load import Config
from sessionlake.config.lookups import FOLDER, LookupSection
from sessionlake.config.names import DEAD_LETTER
from sessionlake.config.problems import InvalidConfigError, Problem
from sessionlake.errors import SessionlakeError, did_you_mean
from sessionlake.sources.columns import EventColumns, normal_type, time_form
from sessionlake.sources.decoding.rows import Decoder, TypedSource
from sessionlake.sources.equal_types import Compared, check_pair
from sessionlake.sources.lookups.dimension import Dimension
from sessionlake.sources.lookups.lookup import Lookup, Lookups

AnySource = TypeVar("AnySource", bound=TypedSource)


class LookupTable(Protocol):
    """A lookup table's columns, without Spark."""

    @property
    def place(self) -> str:
        """The table, as messages name it."""

    @property
    def texts_of_keys(self) -> Collection[str]:
        """The columns with another pipeline's key texts, which equal any type's values by their texts."""

    def types(self) -> Mapping[str, pa.DataType]:
        """Return its column types, by their names for a config; an error if it can't be read."""


@dataclass(frozen=True)
class WithLookups:
    """A source, and its lookup tables; see `TypedSource` for the methods."""

    source: TypedSource
    config: Config
    """With the sections of the lookups."""
    tables: Mapping[str, LookupTable]
    """By the name of the lookup."""
    held: Mapping[str, Dimension] | None = None
    """The only versions, in runs without files; a lookup without a version gives events nulls."""

    def __getattr__(self, name: str) -> Any:
        """Return all else as the source has it."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.source, name)

    def columns(self) -> list[str]:
        """Return the source's columns, and the looked-up columns."""
        return list(dict.fromkeys((*self.source.columns(), *self.looked_up)))

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the types of columns, whether they are the source's or looked up."""
        own = self.source.types([name for name in needed if name not in self.looked_up], identity)
        asked = {self.looked_up[name] for name in needed if name in self.looked_up}
        wanted = [self.types_of(section) for section in self.config.lookup if section.name in asked]
        wanted_types = {name: type_ for types in wanted for name, type_ in types.items()}
        return {name: wanted_types[name] if name in self.looked_up else own[name] for name in needed}

    def decoder(self, columns: EventColumns) -> Decoder:
        """Return the decoder of the source."""
        return self.source.decoder(columns)

    @cached_property
    def looked_up(self) -> dict[str, str]:
        """The looked-up columns, each with its lookup's name."""
        return {name: section.name for section in self.config.lookup for name in section.names}

    @property
    def compared(self) -> list[str]:
        """The source's columns that lookups compare."""
        names = (name for section in self.config.lookup for name in section.of_event)
        return list(dict.fromkeys(name for name in names if name not in self.looked_up))

    def lookups(self, columns: EventColumns) -> Lookups:
        """Return the workers' half, which adds the looked-up columns to rows; `columns` are whole rows' columns."""
        self.check_equal(columns)
        return Lookups(tuple(self._lookup(section, columns) for section in self.config.lookup), columns)

    def _lookup(self, section: LookupSection, columns: EventColumns) -> Lookup:
        # A lookup below may compare a column that nothing else reads.
        compared = {name for one in self.config.lookup for name in one.of_event}
        read = [name for name in section.names if name in columns.needed or name in compared]
        types = {name: columns.types[name] if name in columns.types else self.types_of(section)[name] for name in read}
        config = self.config
        return Lookup(
            section.name,
            section.of_event,
            types,
            {name: section.names[name] for name in read},
            config.event.time if section.is_timed else None,
            time_form(config.event),
            section.missing == DEAD_LETTER,
            f"{config.pipeline.warehouse}/{FOLDER}/{section.name}",
            f"{config.store_dir}/{FOLDER}",
            None if self.held is None else self.held.get(section.name),
            tuple(left for left, _ in section.casts),
        )

    def check_equal(self, columns: EventColumns) -> None:
        """Raise NeverEqualError for a lookup that compares types whose values are never equal, as far as tables can be read.

        `columns` are those of rows with all that is looked up.
        """
        for section in self.config.lookup:
            table = self.tables[section.name]
            try:
                of_table = table.types()
            except SessionlakeError:
                continue
            at = f"{self.config.lookup_at}.{section.name}.on"
            for (left, right), (left_cast, right_cast) in zip(section.pairs, section.casts, strict=True):
                if right in of_table and right not in table.texts_of_keys:
                    one = Compared(left, self._type_of(left, columns), left_cast)
                    check_pair(at, one, Compared(right, of_table[right], right_cast))

    def _type_of(self, name: str, columns: EventColumns) -> pa.DataType:
        """Return a compared column's type: the source's, or a lookup's above."""
        if name in columns.types:
            return columns.types[name]
        section = next(one for one in self.config.lookup if one.name == self.looked_up[name])
        return self.types_of(section)[name]

    def types_of(self, section: LookupSection) -> dict[str, pa.DataType]:
        """Return the types of the columns for events; InvalidConfigError for missing columns, or types that no event can have."""
        table = self.tables[section.name]
        known, at = table.types(), f"{self.config.lookup_at}.{section.name}"
        named = {"on": section.of_table, "columns": tuple(section.columns)}
        named |= {key: (name,) for key in ("valid_from", "valid_to") if (name := getattr(section, key)) is not None}
        problems = [
            Problem(
                f"{at}.{key}",
                f"{name!r} is no column of {table.place!r}{did_you_mean(name, list(known))}; write one of {', '.join(known)}",
            )
            for key, names in named.items()
            for name in names
            if name not in known
        ]
        problems += [
            Problem(f"{at}.{key}", f"{name!r} is {known[name]}, and can't be a time; name a timestamp or a date")
            for key, names in named.items()
            for name in names
            if key.startswith("valid_") and name in known and not _is_time(known[name])
        ]
        problems += [
            Problem(
                f"{at}.on",
                f"{name!r} is {known[name]}, and has no text to compare; name a column of texts, numbers, times or dates",
            )
            for name in section.of_table
            if name in known and (not _is_plain(normal_type(known[name])) or known[name] == pa.binary())
        ]
        types = {name: normal_type(known[column]) for name, column in section.names.items() if column in known}
        problems += [
            Problem(
                f"{at}.columns",
                f"{section.names[name]!r} is {type_}, and events have texts, numbers, times, dates, true and false; leave it out",
            )
            for name, type_ in types.items()
            if not _is_plain(type_)
        ]
        if problems:
            raise InvalidConfigError(problems)
        return types


def _is_time(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) or pa.types.is_date(type_)


def _is_plain(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_):
        return False
    try:
        stored_type(stored_text(type_))
    except KeyError:
        return False
    return True


def with_lookups(source: AnySource, config: Config, tables: Mapping[str, LookupTable]) -> AnySource:
    """Return a source with its input's lookups; the source itself if there are none."""
    return cast("AnySource", WithLookups(source, config, tables)) if config.lookup else source
