"""Lookup tables, as far as Spark is not needed: their columns, and the rows of small tables."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from sessionlake.config.problems import Gathered, InvalidConfigError, Problem
from sessionlake.preflight.sources import UnseenError
from sessionlake.sources.base import Source
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.files import PATH, is_local
from sessionlake.sources.files import source_files
from sessionlake.sources.lookups.dimension import BadVersionError, Dimension
from sessionlake.sources.lookups.making import Making
from sessionlake.sources.lookups.source import WithLookups
from sessionlake.sources.lookups.tables import TableToLookUp
from sessionlake.warehouse.arrow_files import delta_rows
from sessionlake.warehouse.lake import opened

_MOST_ROWS, _MOST_BYTES = 100_000, 16 << 20
"""Larger tables are not read by a look at a pipeline."""


def lookup_problems(sources: Mapping[str, Source], known: Collection[str] = ()) -> list[Problem]:
    """Return the problems of all lookups' tables and columns, except `known` lookups."""
    gathered = Gathered()
    with_tables = [source for source in sources.values() if isinstance(source, WithLookups)]
    for source in with_tables:
        for section in source.config.lookup:
            if section.name not in known:
                with gathered.one(), suppress(UnseenError):
                    source.types_of(section)
    return gathered.problems


def held_lookups(sources: Mapping[str, Source]) -> dict[str, Any]:
    """Return sources with their small tables' rows; InvalidConfigError for a table with unusable rows."""
    return {
        name: replace(source, held=dict(_held(source))) if isinstance(source, WithLookups) else source
        for name, source in sources.items()
    }


def _held(source: WithLookups) -> Iterator[tuple[str, Dimension]]:
    for section in source.config.lookup:
        table = source.tables[section.name]
        if not isinstance(table, TableToLookUp) or table.upstream is not None:
            continue
        try:
            rows = _rows(table)
            if rows is not None:
                yield section.name, Making.of(section).dimension(rows)
        except BadVersionError as error:
            raise InvalidConfigError(
                [Problem(table.place_at, f"{table.place!r} {error}; correct the table")]
            ) from error
        except (UnseenError, DeltaError, OSError, pa.ArrowException):
            continue


def _rows(table: TableToLookUp) -> pa.Table | None:
    """Return the rows of a small table; None for a larger table."""
    known = table.types()
    types = {name: known[name] for name in table.wanted}
    path = table.config.source.path
    if not table.config.source.entry.opens_files:
        found = opened(path, impatient=True)
        added = pa.table(found.get_add_actions(flatten=True))
        rows, size = (pc.sum(added[name]).as_py() or 0 for name in ("num_records", "size_bytes"))
        if added["num_records"].null_count or rows > _MOST_ROWS or size > _MOST_BYTES:
            return None
        read = pa.table(delta_rows(found, list(types)).read_all())
        return pa.table({name: read[name].cast(type_, safe=False) for name, type_ in types.items()})
    if not is_local(path):
        return None
    files = source_files(table.config)
    if sum(Path(file).stat().st_size for file in files) > _MOST_BYTES:
        return None
    decoder = table.source.decoder(EventColumns(None, None, None, None, tuple(types), types))
    parts, count = [], 0
    for part in decoder.decode(pa.table({PATH: files})):
        error = pa.nulls(part.table.num_rows, pa.string()) if part.error is None else part.error
        wrong = np.flatnonzero(pc.is_valid(error).to_numpy(zero_copy_only=False)).astype(np.int64)
        if len(wrong):
            raise BadVersionError(f"has rows that can't be read, the first at {part.source(wrong[:1])[0].as_py()}")
        parts.append(part.table)
        count += part.table.num_rows
        if count > _MOST_ROWS:
            return None
    return pa.concat_tables(parts) if parts else pa.schema(list(types.items())).empty_table()
