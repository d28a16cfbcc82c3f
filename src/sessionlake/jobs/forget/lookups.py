"""Versions of tables that are looked up: files with all rows of a table, and so perhaps with a key, even one without an event."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, combined
from sessionlake.columnar.keys import key_parts
from sessionlake.config.lookups import FOLDER
from sessionlake.jobs.forget.lake import Lake
from sessionlake.sources.lookups.dimension import KEY, mapped
from sessionlake.sources.lookups.lookup import FILE, MARK, UNFINISHED
from sessionlake.warehouse.arrow_files import file_system, local_path


def erase_versions(lake: Lake, *, alone: bool) -> int:
    """Remove the files that hold a key, or mark them if a driver runs (not `alone`); return their number.

    The driver removes a marked file between two batches, and makes a new one of the table as it is then. If none runs, files that
    tasks have left which were killed go, too: they may hold a key, and nobody reads them.
    """
    found = find_in_versions(lake)
    used = tuple(f"{_versions(lake)}/{name}/" for name in _lookups(lake))
    for uri in found:
        if alone or not uri.startswith(used):
            lake.tables.delete(uri)
        else:
            lake.tables.write_text_once(f"{uri}{MARK}", "")
    if alone:
        for uri in [uri for uri in _files(lake) if _is_left(uri)]:
            lake.tables.delete(uri)
    return len(found)


def await_versions(lake: Lake, free: Callable[[], bool], waits: Callable[[], bool]) -> None:
    """Wait until the driver has removed the marked files, at most as long as `waits` returns True; if `free` says that none runs, remove them."""
    while marks := [uri for uri in _files(lake) if uri.endswith(MARK)]:
        if free():
            for mark in marks:
                lake.tables.delete(mark.removesuffix(MARK))
                lake.tables.delete(mark)
            return
        if not waits():
            return


def find_in_versions(lake: Lake) -> list[str]:
    """Return the files, and the copies on this machine, with a key in any row: as a text, or as the texts of all key columns."""
    fields = max(len(names) for names in lake.config.keys.values())
    keys = [parts for parts in (*lake.keys.parts(1), *(lake.keys.parts(fields) if fields > 1 else ())) if parts]
    return [uri for uri in _files(lake) if uri.endswith(FILE) and holds(_read(uri), keys)]


def _versions(lake: Lake) -> str:
    return f"{lake.tables.warehouse}/{FOLDER}"


def _lookups(lake: Lake) -> list[str]:
    return [section.name for side in lake.config.inputs.values() for section in side.lookup]


def _files(lake: Lake) -> Iterator[str]:
    """Yield all files, also files of lookups that are gone from the config."""
    for name in sorted(lake.tables.names(_versions(lake))):
        folder = f"{_versions(lake)}/{name}"
        yield from (f"{folder}/{file}" for file in sorted(lake.tables.names(folder)))
    yield from map(str, sorted(Path(lake.config.driver_store_dir, FOLDER).glob("*/*")))


def _is_left(uri: str) -> bool:
    """True if a task has begun to write or to copy the file."""
    return uri.endswith(UNFINISHED) or uri.rpartition("/")[2].startswith(".")


def _read(uri: str) -> pa.Table:
    here = local_path(uri)
    if here is not None:
        return mapped(here).table
    system, path = file_system(uri)
    with system.open_input_file(path) as source:
        return pa.ipc.open_file(source).read_all()


def holds(table: pa.Table, keys: Sequence[tuple[str, ...]]) -> bool:
    """True if a version's row has a key: the row's texts contain the texts of all the key's columns.

    >>> table = pa.table({KEY: ['["ann","1"]', '["bob","2"]'], "plan": ["pro", "free"]})
    >>> [holds(table, [key]) for key in (("ann",), ("bob", "free"), ("bob", "pro"))]
    [True, True, False]
    """
    texts = _texts(table)
    return any(_has(texts, [key for key in keys if len(key) == fields]) for fields in {len(key) for key in keys})


def _has(texts: Sequence[pa.Array], keys: Sequence[tuple[str, ...]]) -> bool:
    """True if a row has all parts of any key; the keys have equally many parts."""
    rows = np.ones(len(texts[0]), bool)
    for parts in zip(*keys, strict=True):
        rows &= _any(texts, parts)
    if len(keys[0]) == 1 or not rows.any():
        return bool(rows.any())
    # Keys may have parts in common, so that a row can have parts of several keys, and no key.
    some = [text.filter(pa.array(rows)) for text in texts]
    return any(np.logical_and.reduce([_any(some, [part]) for part in key]).any() for key in keys)


def _any(texts: Sequence[pa.Array], wanted: Sequence[str]) -> Bools:
    """For each row, return whether a text is wanted."""
    values = pa.array(wanted, pa.string())
    found: Bools = np.logical_or.reduce([pc.is_in(text, values).to_numpy(zero_copy_only=False) for text in texts])
    return found


def _texts(table: pa.Table) -> list[pa.Array]:
    """Return the columns of texts, and the columns that keys are made of, as far as they are several."""
    keys = combined(table[KEY])
    texts = [combined(table[field.name]) for field in table.schema if field.type == pa.string()]
    first = keys[0].as_py() if len(keys) else ""
    return [*texts, *key_parts(keys, _columns_of(first))] if first.startswith('["') else texts


def _columns_of(key: str) -> int:
    try:
        return len(json.loads(key))
    except ValueError:  # a single column's text that begins in the same way
        return 1
