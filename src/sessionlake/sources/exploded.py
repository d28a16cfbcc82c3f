"""A source whose rows' lists give the events (docs/rules/shared.md, rule 463)."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa

from sessionlake.column_names import ELEMENT, is_within, name_of
from sessionlake.columnar.column_types import type_name, type_named
from sessionlake.config.load import Config
from sessionlake.errors import ConfigError, MissingColumnsError
from sessionlake.sources.columns import EventColumns, normal_type
from sessionlake.sources.decoding.exploding import Exploding, ExplodingDecoder
from sessionlake.sources.decoding.nested import leaves, type_at
from sessionlake.sources.decoding.rows import Decoder, Rows, TypedSource
from sessionlake.sources.decoding.whole_rows import WholeDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

AnySource = TypeVar("AnySource", bound=TypedSource)
_TYPED_BY_USE = ("json", "parquet")
"""Formats whose lists are decoded with the fields in use only."""


@dataclass(frozen=True)
class Exploded:
    """A source, and the list whose elements are events; see `Source` and `TypedSource` for the methods."""

    source: Any
    config: Config

    def __getattr__(self, name: str) -> Any:
        """Return all else as the source has it."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.source, name)

    @cached_property
    def exploding(self) -> Exploding:
        """The list."""
        event = self.config.event
        return Exploding(event.exploded or "", event.explode is None)

    @property
    def _at(self) -> str:
        return f"{self.config.event_at}.{'explode_outer' if self.exploding.outer else 'explode'}"

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the types of columns, which of the list are those of an element."""
        path, declared = self.exploding.path, self.config.source.types
        above = next((name for name in needed if name != path and is_within(path, name)), None)
        if above is not None:
            raise ConfigError(f"{self._at}: {above!r} has the list {path!r}, and can't be read whole; name its fields")
        below = [name for name in needed if is_within(name, path)]
        types = {name: type_named(declared[name]) for name in below if name != path and name in declared}
        unknown = [name for name in below if name not in types]
        if unknown or not below:
            # Before other columns, which may be missing for the same reason.
            self._element_type()
        others = [name for name in needed if name not in below and name != ELEMENT]
        types |= self.source.types(others, identity - {*below, ELEMENT})
        types |= {ELEMENT: pa.int64()} if ELEMENT in needed else {}
        identifying = [name for name in unknown if name in identity]
        types |= self._of_elements(identifying, frozenset({path})) if identifying else {}
        unknown = [name for name in unknown if name not in types]
        types |= self._of_elements(unknown, frozenset()) if unknown else {}
        return {name: types[name] for name in needed}

    def _of_elements(self, names: Sequence[str], identity: AbstractSet[str]) -> dict[str, pa.DataType]:
        """Return the types of fields of an element, or of an element itself."""
        path = self.exploding.path
        element = self._element_type(identity)
        if element is None:
            return dict.fromkeys(names, pa.null())
        schema = [pa.field("element", element)]
        found = {name: type_at(schema, name_of(["element", *(self.exploding.below(name) or ())])) for name in names}
        missing = [name for name in names if found[name] is None]
        if missing:
            fields = [path, *(f"{path}.{leaf}" for leaf in leaves(element if pa.types.is_struct(element) else ()))]
            raise MissingColumnsError(
                f"{self._at}: the elements of {path!r} have no field {missing[0]!r}; write one of {', '.join(fields)}",
                missing,
                fields,
            )
        return {name: normal_type(type_) for name, type_ in found.items() if type_ is not None}

    def _element_type(self, identity: AbstractSet[str] = frozenset()) -> pa.DataType | None:
        """Return the type of an element; None if nothing is known. ConfigError if the column is no list."""
        path = self.exploding.path
        type_ = self.source.types([path], identity)[path]
        if type_ == pa.null():
            return None
        if not (pa.types.is_list(type_) or pa.types.is_large_list(type_)):
            raise ConfigError(
                f"{self._at}: {path!r} is of type {type_name(type_)}; name a list, whose elements are the events"
            )
        return type_.value_type

    @cached_property
    def _list_type(self) -> pa.DataType:
        """The type of the whole list."""
        return pa.list_(self._element_type() or pa.null())

    def decoder(self, columns: EventColumns) -> ExplodingDecoder:
        """Return the decoder of events."""
        exploding = self.exploding
        reads_none = all(exploding.below(name) is None for name in columns.needed)
        if reads_none or self.config.source.entry.is_table or self.config.source.format not in (*_TYPED_BY_USE, None):
            exploding = replace(exploding, list_type=self._list_type)
        return ExplodingDecoder(columns, self.source.decoder(exploding.of_rows(columns)), exploding)

    def first_rows(self, decoder: ExplodingDecoder, most: int | None) -> "Iterator[Rows]":
        """Decode the first rows' events."""
        yield from decoder.events(self.source.first_rows(decoder.of_rows, most))

    def stream(self, columns: EventColumns, *, everything_at_once: bool = False) -> "DataFrame":
        """Return the stream of rows."""
        rows: DataFrame = self.source.stream(self._of_rows(columns), everything_at_once=everything_at_once)
        return rows

    def replay(self, tables: Any, columns: EventColumns, *batches: Any) -> "DataFrame | None":
        """Return the rows of past batches."""
        rows: DataFrame | None = self.source.replay(tables, self._of_rows(columns), *batches)
        return rows

    def versioned(self) -> "_Versions | None":
        """Return how batches read versions of rows."""
        found = self.source.versioned()
        return None if found is None else _Versions(found, self)

    def _of_rows(self, columns: EventColumns) -> EventColumns:
        decoder: ExplodingDecoder = self.decoder(columns)
        return decoder.of_rows.columns


@dataclass(frozen=True)
class _Versions:
    """Versions of rows; see `Versioned` for the methods."""

    of: Any
    source: Exploded

    def __getattr__(self, name: str) -> Any:
        """Return all else as it is."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.of, name)

    def rows(self, columns: EventColumns, *versions: Any) -> "DataFrame":
        """Return the rows between two versions."""
        rows: DataFrame = self.of.rows(self.source._of_rows(columns), *versions)  # noqa: SLF001 (its own part)
        return rows


def exploded(source: AnySource, config: Config) -> AnySource:
    """Return a source with its input's list exploded; the source itself if rows are the events."""
    return source if config.event.exploded is None else cast("AnySource", Exploded(source, config))


def whole_decoder(columns: EventColumns, decoder: Decoder) -> Decoder:
    """Return the decoder of the archive's whole rows; `decoder` is that of the source."""
    return (
        replace(decoder, columns=columns).over(WholeDecoder(columns))
        if isinstance(decoder, ExplodingDecoder)
        else WholeDecoder(columns)
    )
