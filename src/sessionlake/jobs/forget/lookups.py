"""Versions of tables that are looked up: files with all rows of a table, and so perhaps with a key, even one without an event."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.config.lookups import FOLDER
from sessionlake.jobs.forget.lake import Lake
from sessionlake.sources.lookups.dimension import mapped
from sessionlake.sources.lookups.names import FILE, MARK
from sessionlake.warehouse.arrow_files import file_system, local_path


def erase_versions(lake: Lake, *, alone: bool) -> int:
    """Remove the files that hold a key, or mark them if a driver runs (not `alone`); return their number.

    The driver removes a marked file between two batches, and makes a new one of the table as it is then.
    """
    found = find_in_versions(lake)
    for uri in found:
        if alone or not uri.startswith(lake.tables.warehouse):
            lake.tables.delete(uri)
        else:
            lake.tables.write_text_once(f"{uri}{MARK}", "")
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
    """Return the files, and their copies on this machine, in which a text is one of the keys."""
    wanted = pa.array(lake.keys.values, pa.string())
    return [uri for uri in _files(lake) if uri.endswith(FILE) and _holds(uri, wanted)]


def _files(lake: Lake) -> Iterator[str]:
    for section in (section for side in lake.config.inputs.values() for section in side.lookup):
        folder = f"{lake.tables.warehouse}/{FOLDER}/{section.name}"
        yield from (f"{folder}/{name}" for name in sorted(lake.tables.names(folder)))
        copies = Path(lake.config.driver_store_dir, FOLDER, section.name)
        yield from map(str, sorted(copies.glob("*")))


def _holds(uri: str, keys: pa.Array) -> bool:
    here = local_path(uri)
    if here is not None:
        table = mapped(here).table
    else:
        system, path = file_system(uri)
        with system.open_input_file(path) as source:
            table = pa.ipc.open_file(source).read_all()
    texts = (table[field.name] for field in table.schema if field.type == pa.string())
    return any(pc.any(pc.is_in(column, keys)).as_py() for column in texts)
