"""Plain rows in place of a config's sources."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.column_names import ELEMENT, is_element, parts_of
from sessionlake.config.load import Config, load_config, parse_config
from sessionlake.config.operators import named
from sessionlake.engine.operator import Operator
from sessionlake.errors import ConfigError
from sessionlake.local.columns import Types, type_of, types_of
from sessionlake.local.rows import Row
from sessionlake.local.tables import LocalTables
from sessionlake.operators.shared.sides.equality import equal_types
from sessionlake.operators.shared.sides.section import SidedSection
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.nested import flattened
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.sources.lookups.dimension import BadVersionError
from sessionlake.sources.lookups.making import Making
from sessionlake.sources.lookups.source import WithLookups
from sessionlake.sources.record_columns import CHANGE_META, FEED_COLUMNS, HEADERS, META
from sessionlake.stream.unique import once

Lookups = Mapping[str, Sequence[Row] | pa.Table]
"""Rows to look up, by lookup name: dicts, or a table."""
_PIPELINE = {"name": "local", "warehouse": "warehouse", "store": "store"}


_META = {**CHANGE_META, **FEED_COLUMNS, ELEMENT: pa.int64()}


@dataclass(frozen=True)
class LocalSource:
    """Rows whose columns have these types; see `TypedSource` for the methods. The type of any other column is null: not known yet."""

    known: Types

    def columns(self) -> list[str]:
        """Return the columns."""
        return [name for name in self.known if len(parts_of(name)) == 1]

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the types of the named columns."""
        del identity
        return {name: self.known.get(name) or _META.get(name, pa.null()) for name in needed}

    def decoder(self, columns: EventColumns) -> TableDecoder:
        """Return a decoder of tables."""
        return TableDecoder(columns, None)


def local_config(given: Config | Mapping[str, Any] | str | Path) -> Config:
    """Return a config, or read it from a TOML file or a file's content, which needs no [pipeline]; ConfigError if it is invalid."""
    if isinstance(given, Mapping):
        return parse_config({"pipeline": _PIPELINE, **given}, Path())
    return given if isinstance(given, Config) else load_config(given)


@dataclass(frozen=True)
class LocalTable:
    """Rows to look up; see `LookupTable` for the methods."""

    place: str
    rows: pa.Table

    @classmethod
    def of(cls, name: str, rows: Sequence[Row] | pa.Table) -> "LocalTable":
        """Return plain rows as a table, typed as rows of events are."""
        if not isinstance(rows, pa.Table):
            names = dict.fromkeys(column for row in rows for column in row)
            types = {column: type_of(column, rows) for column in names}
            rows = pa.Table.from_pylist(list(rows), schema=pa.schema(list(types.items())))
        return cls(name, _typed(name, rows))

    @property
    def texts_of_keys(self) -> tuple[str, ...]:
        """No columns: the rows come from no pipeline."""
        return ()

    def types(self) -> dict[str, pa.DataType]:
        """Return the types of the columns."""
        return types_of(self.rows)


def _typed(name: str, rows: pa.Table) -> pa.Table:
    """Cast a table to the types that tables are read as; ConfigError for values outside these types."""
    columns = {}
    types = types_of(rows)
    rows = flattened(rows, types)
    for column, type_ in types.items():
        try:
            columns[column] = rows[column].cast(type_)
        except pa.ArrowInvalid as error:
            raise ConfigError(
                f"lookups: column {column!r} of {name!r} is {rows[column].type}, and has values that no {type_} has; cast it"
            ) from error
    return pa.table(columns)


def _looked_up(source: LocalSource, side: Config, lookups: Lookups) -> TypedSource:
    """Return a source with the input's lookups; ConfigError for a lookup without rows, or with unusable rows."""
    tables, held = {}, {}
    for section in side.lookup:
        at = f"{side.lookup_at}.{section.name}"
        if section.name not in lookups:
            raise ConfigError(f"{at}: there are no rows for it; give them, as in lookups={{{section.name!r}: rows}}")
        table = LocalTable.of(section.name, lookups[section.name])
        if not table.rows.column_names:
            raise ConfigError(
                f"{at}: its rows have no columns; give a pyarrow.Table, which has columns even without rows"
            )
        tables[section.name] = table
        WithLookups(source, side, tables).types_of(section)
        try:
            held[section.name] = Making.of(section).dimension(table.rows)
        except BadVersionError as error:
            raise ConfigError(f"{at}: the table of these rows {error}") from error
    return WithLookups(source, side, tables, held) if tables else source


def local_operator(
    config: Config, types: Mapping[str, Types], lookups: Lookups | None = None, secret: str = ""
) -> Operator[Any]:
    """Return a config's operator over rows with the given column types by input; keys and ids are texts by default.

    `lookups` are the rows to look up, by lookup name. For `secret` see `stream.unique.hashes`.
    """
    if isinstance(config.section, SidedSection):
        types = equal_types(config.section.pairs_on, {name: types.get(name, {}) for name in config.inputs})
    sources: dict[str, TypedSource] = {}
    for name, side in config.inputs.items():
        texts = [
            column
            for column in (*config.keys[name], *side.event.id_columns)
            if column != ELEMENT and not is_element(column)
        ]
        # A dict in a row would be a column with fields.
        headers = {HEADERS: META[HEADERS]} if side.source.entry.has_topic else {}
        source = LocalSource({**dict.fromkeys(texts, pa.string()), **types.get(name, {}), **headers})
        sources[name] = _looked_up(source, side, lookups or {})
    return once(named(config.entry.operator)(config, sources, None), config.inputs, secret)


def local_tables(config: Config) -> LocalTables:
    """Return the in-memory tables of a config's operator."""
    tables: LocalTables = named(config.entry.tables)(config)
    return tables
