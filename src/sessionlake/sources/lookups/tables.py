"""Lookup tables as sources: Delta tables, directories of files, other pipelines' tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

import pyarrow as pa

from sessionlake.config.load import Config
from sessionlake.config.lookups import LookupSection
from sessionlake.config.operators import named
from sessionlake.config.source import SourceSection
from sessionlake.config.upstream import LookedUpTable
from sessionlake.errors import SourceError
from sessionlake.sources.columns import normal_type
from sessionlake.sources.decoding.files import local_path
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.warehouse.changelog import Changelog

Opened = Callable[[Config], TypedSource]
"""Opens a config's source, with a lookup table in the source's place."""


@dataclass(frozen=True)
class TableToLookUp:
    """See `LookupTable` for the methods."""

    section: LookupSection
    at: str
    """The place of the section in the config."""
    config: Config
    """The pipeline's config with the table as its source."""
    upstream: LookedUpTable | None
    """The pipeline whose table it is."""
    source: TypedSource

    @classmethod
    def of(cls, side: Config, section: LookupSection, opened: Opened) -> "TableToLookUp":
        """Return the table of a lookup of an input."""
        at, upstream = f"{side.lookup_at}.{section.name}", side.looked_up.get(section.name)

        class Section(SourceSection):
            AT: ClassVar[str] = at  # errors of the source name this place

        path = f"{upstream.warehouse}/{changelog_of_table(upstream).snapshot}" if upstream else section.path or ""
        if section.format is not None:
            path = local_path(path)
        source = Section(
            kind="delta" if section.format is None else "files",
            path=path,
            format=section.format,
            types=section.types,
            shallow_clones=section.shallow_clones and section.format is None,
        )
        config = side.model_copy(update={"source": source})
        return cls(section, at, config, upstream, opened(config))

    @property
    def place(self) -> str:
        """The table as the config names it."""
        return self.section.table or self.section.path or ""

    @property
    def place_at(self) -> str:
        """The key in the config that names it."""
        return f"{self.at}.path" if self.upstream is None else f"{self.at}.table"

    def types(self) -> Mapping[str, pa.DataType]:
        """Return its column types; SourceError if it can't be read."""
        try:
            found = self.source.types(self.source.columns(), self._identity)
        except SourceError as error:
            if self.upstream is None:
                raise
            raise SourceError(f"{self.place_at}: {self.place!r} has no rows yet; run that pipeline first") from error
        types = {name: normal_type(type_) for name, type_ in found.items()}
        if self.upstream is not None:
            types |= {
                name: types[self.upstream.called(name)]
                for name in self.upstream.key
                if self.upstream.called(name) in types
            }
        return types

    @property
    def texts_of_keys(self) -> tuple[str, ...]:
        """The key's columns of a looked-up pipeline, as a config and as rows name them."""
        return () if self.upstream is None else (*self.upstream.key, self.upstream.entry.rows.key)

    @property
    def _identity(self) -> frozenset[str]:
        """The compared columns, and the columns of events' keys or ids."""
        event = self.config.event
        own = {*event.key_columns, *event.id_columns, *chain.from_iterable(self.config.keys.values())}
        return frozenset((*self.section.of_table, *(self.section.names[name] for name in own & {*self.section.names})))

    def called(self, column: str) -> str:
        """Return how its rows call a column."""
        return column if self.upstream is None else self.upstream.called(column)

    @property
    def wanted(self) -> list[str]:
        """The columns of a version, by their names in the config."""
        section = self.section
        times = (name for name in (section.valid_from, section.valid_to) if name is not None)
        return list(dict.fromkeys((*section.of_table, *section.columns, *times)))


def changelog_of_table(upstream: LookedUpTable) -> Changelog:
    """Return a looked-up pipeline's changelog."""
    changelog: Changelog = named(upstream.entry.changelog)
    return replace(changelog, key_columns=upstream.key) if len(upstream.key) > 1 else changelog


def tables_of(side: Config, opened: Opened) -> dict[str, TableToLookUp]:
    """Return the tables of an input's lookups, by the lookups' names."""
    return {section.name: TableToLookUp.of(side, section, opened) for section in side.lookup}
