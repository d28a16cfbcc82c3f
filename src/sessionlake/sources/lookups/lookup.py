"""A lookup as the workers see it: rows of events in, the same rows with more columns out.

A version's file is mapped if it lies on this machine's disks, else copied there once. Its name is
`<when it was made>-<version>-<hashes of the settings>` and the kind of file.
"""

import os
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.columnar.equality import as_texts
from sessionlake.columnar.time_formats import TimeFormat
from sessionlake.config.names import DEAD_LETTER
from sessionlake.config.paths import expanded, make_private
from sessionlake.errors import SourceError, first_line
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.casting import parse_times
from sessionlake.sources.decoding.decoded import no_row
from sessionlake.sources.decoding.rows import Rows
from sessionlake.sources.lookups.dimension import Dimension, mapped
from sessionlake.warehouse.arrow_files import file_system, local_path

FILE, REFUSED = ".arrow", ".refused"
"""Name endings of a version's rows, and of the reason against a version."""
UNFINISHED = ".tmp"
"""Name ending of a file that a task writes, or that a killed task has left."""
MARK = ".forget"
"""Name ending of a mark on a file with an erased key: the driver removes both if no batch runs."""

AGAIN = ".again"
"""The end of the name of a file that marks another one, which was made again for a batch of before; it has the time of that,
in microseconds."""


def marked(names: Iterable[str]) -> list[str]:
    """Return the files among the names in a folder that are marked.

    >>> marked(["1.arrow", "1.arrow.forget", "2.arrow"])
    ['1.arrow']
    """
    return [name.removesuffix(MARK) for name in names if name.endswith(MARK)]


def made_us(name: str) -> int:
    """Return when a file was made, microseconds.

    >>> made_us("0000000000000007-12-5c1f0a2b.arrow")
    7
    """
    return int(name.partition("-")[0])


def version_of(name: str) -> str:
    """Return the version of the table.

    >>> version_of("0000000000000007-12-5c1f0a2b.arrow")
    '12'
    """
    return name.split("-")[1]


def settings_of(name: str) -> str:
    """Return the hashes of the settings.

    >>> settings_of("0000000000000007-12-5c1f0a2b77ab3d9e.arrow")
    '5c1f0a2b77ab3d9e'
    """
    return name.split("-")[2].partition(".")[0]


_TRIES = 20


def local_copy(folder: str, file: str, copies: str) -> str:
    """Return the local path of a version's file; SourceError if it is gone.

    A copy lies in a directory of the stores, which this user alone may read. Copies of the table's other versions are removed.
    """
    uri = f"{folder}/{file}"
    here = local_path(uri)
    if here is not None:
        if not Path(here).is_file():
            raise SourceError(
                f"lookup: the version {uri!r} is gone, and a batch needs it; start the stream again, and it is made again"
            )
        return here
    directory = Path(expanded(copies)) / Path(folder).name
    copy = directory / file
    if not copy.is_file():
        make_private(directory)
        _copied(uri, copy)
        for other in directory.iterdir():
            if other != copy and (other.suffix == FILE or _is_left(other)):
                other.unlink(missing_ok=True)
    return str(copy)


def opened(folder: str, file: str, copies: str) -> Dimension:
    """Return a version; SourceError if its file is gone."""
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):  # a task that reads another version has removed the copy, as in a backfill
            return mapped(local_copy(folder, file, copies))
    return mapped(local_copy(folder, file, copies))


def _is_left(path: Path) -> bool:
    """Say whether a killed task has left an incomplete copy: nothing is copied for a day."""
    try:
        return path.name.startswith(".") and path.stat().st_mtime < time.time() - 86_400
    except FileNotFoundError:
        return False


def _copied(uri: str, copy: Path) -> None:
    """Copy a file, in a single step for all its readers."""
    temporary = copy.with_name(f".{uuid.uuid4().hex}")
    try:
        system, source = file_system(uri)
        fs.copy_files(source, str(temporary), source_filesystem=system, destination_filesystem=fs.LocalFileSystem())
        os.replace(temporary, copy)  # noqa: PTH105 (over one that another task has copied)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SourceError(f"lookup: {uri!r} can't be copied to {str(copy.parent)!r} ({first_line(error)})") from error


FOUND, MISSING = "found", "missing"
"""The begins of the names of counts, as `found:users`."""
Pins = Mapping[str, str]
"""By lookup the name of the file of a version."""


@dataclass(frozen=True)
class Lookup:
    """One lookup; pickled to the workers."""

    name: str
    on: tuple[str, ...]
    """The event's columns of the comparison."""
    columns: Mapping[str, pa.DataType]
    """The columns that events get and something reads, by their event names, with types."""
    of_table: Mapping[str, str]
    """Their names in the table."""
    time: str | None = None
    """The column of the event's time, if the row valid at this time counts."""
    time_unit: str | TimeFormat | None = None
    refuses: bool = False
    """Whether an event without a row is refused."""
    folder: str = ""
    """The files of the versions."""
    copies: str = ""
    """The directory of their copies on this machine, if the folder is not on its disks; variables are not yet replaced."""
    held: Dimension | None = None
    """The one version, in runs without files."""
    casts: tuple[bool, ...] = ()
    """Which of `on` are compared as texts; empty for none."""

    def added(self, rows: Rows, file: str | None) -> tuple[Rows, dict[str, int]]:
        """Return the rows with the columns of a version; the numbers of rows that found one and that did not.

        Without a file, the version, the columns are null: the batch was before the lookup.
        """
        table = rows.table
        if file is None and self.held is None:
            nulls = {name: pa.nulls(table.num_rows, type_) for name, type_ in self.columns.items()}
            return replace(rows, table=_with(table, nulls)), {}
        times: tuple[Ints | None, Bools | None] = (None, None)
        if self.time is not None:
            times = parse_times(table[self.time], self.time_unit)
        version = opened(self.folder, str(file), self.copies) if self.held is None else self.held
        found = version.find(version.keys_of(as_texts([table[name] for name in self.on], self.casts)), *times)
        # A file that can't be made again lacks columns that the config did not have then.
        known = {*version.table.column_names}
        names = {name: self.of_table[name] for name in self.columns if self.of_table[name] in known}
        values = {name: pa.nulls(len(found), type_) for name, type_ in self.columns.items()}
        values |= {name: column.cast(self.columns[name]) for name, column in version.take(found, names).items()}
        table = _with(table, values)
        judged = (
            np.ones(len(found), bool) if rows.error is None else pc.is_null(rows.error).to_numpy(zero_copy_only=False)
        )
        missing = judged & (found < 0)
        counts = {f"{FOUND}:{self.name}": int((judged & ~missing).sum()), f"{MISSING}:{self.name}": int(missing.sum())}
        error = rows.error
        if self.refuses and missing.any():
            reason = pa.scalar(no_row(self.name), pa.string())
            before = pa.nulls(len(found), pa.string()) if error is None else error
            error = pc.if_else(pa.array(missing), reason, before)
        return replace(rows, table=table, error=error), counts


def _with(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return a table with columns in place of columns of the same names."""
    others = {name: table[name] for name in table.column_names if name not in columns}
    return pa.table({**others, **columns})


@dataclass(frozen=True)
class Lookups:
    """The lookups of an input, in the order in which they are made; without any, rows stay as they are."""

    each: tuple[Lookup, ...] = ()
    columns: EventColumns | None = None
    """The columns of rows with all look-ups; None without lookups."""

    def added(self, rows: Rows, pins: Pins) -> tuple[Rows, dict[str, int]]:
        """Return rows with all lookups' columns, and the numbers of rows with and without a match, by lookup."""
        counts: dict[str, int] = {}
        for lookup in self.each:
            rows, more = lookup.added(rows, pins.get(lookup.name))
            counts |= more
        # In the order of `needed`, as decoders give them: whole rows travel without column names.
        return rows if self.columns is None else replace(rows, table=rows.table.select(self.columns.needed)), counts

    def under(self, missing: Mapping[str, str]) -> "Lookups":
        """Return them with other settings for events without a match, by lookup."""
        each = (replace(lookup, refuses=missing.get(lookup.name) == DEAD_LETTER) for lookup in self.each)
        return replace(self, each=tuple(each))


NO_LOOKUPS = Lookups()
