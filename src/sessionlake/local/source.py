"""Plain rows as the sources of a config's operator, in place of the sources that the config reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.config.load import Config, load_config, parse_config
from sessionlake.config.operators import named
from sessionlake.engine.operator import Operator
from sessionlake.local.columns import Types
from sessionlake.local.tables import LocalTables
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.sources.record_columns import META
from sessionlake.stream.unique import once

_PIPELINE = {"name": "local", "warehouse": "warehouse", "store": "store"}


@dataclass(frozen=True)
class LocalSource:
    """Rows whose columns have these types; see `TypedSource` for the methods. The type of any other column is null: not known yet."""

    known: Types

    def columns(self) -> list[str]:
        """Return the columns."""
        return list(self.known)

    def types(self, needed: Sequence[str]) -> dict[str, pa.DataType]:
        """Return the types of the named columns."""
        return {name: self.known.get(name) or META.get(name, pa.null()) for name in needed}

    def decoder(self, columns: EventColumns) -> TableDecoder:
        """Return a decoder of tables."""
        return TableDecoder(columns, None)


def local_config(given: Config | Mapping[str, Any] | str | Path) -> Config:
    """Return a config, or that of a TOML file, or of a file's content, which needs no [pipeline]; ConfigError if it can't be."""
    if isinstance(given, Mapping):
        return parse_config({"pipeline": _PIPELINE, **given}, Path())
    return given if isinstance(given, Config) else load_config(given)


def local_operator(config: Config, types: Mapping[str, Types]) -> Operator[Any]:
    """Return the operator of a config, over rows whose columns have the given types by input; keys and ids are texts by default."""
    sources = {}
    for name, side in config.inputs.items():
        texts = [*config.keys[name], *side.event.id_columns]
        sources[name] = LocalSource({**dict.fromkeys(texts, pa.string()), **types.get(name, {})})
    return once(named(config.entry.operator)(config, sources, None), config.inputs)


def local_tables(config: Config) -> LocalTables:
    """Return the tables in memory of the operator that a config asks for."""
    tables: LocalTables = named(config.entry.tables)()
    return tables
