"""Plans of the snapshot's files: those to rewrite together, and the dates or keys that each new file holds.

The snapshot has no partitions. Instead each file holds whole neighbouring dates, or a range of the keys of one date.
Delta's statistics in the log hold the bounds of the date of the rows' start, which serve as partitions would. The
number of dates in a file depends on their bytes.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from sessionlake.jobs.compact.layout_texts import place_of

MB = 1 << 20
LEAST_BYTES = 8 * MB
"""Size from which on a file begins with a new date: a smaller file costs more to open than to read."""
SPARE_FILES = 4
"""Files that a date may have beyond the number that the bytes need, and small files that the table may have."""
DELETED_SHARE = 0.1
"""The share of a file's rows that the deletion vector may hide, before the file is rewritten without them."""


@dataclass(frozen=True)
class File:
    """A file of the snapshot, as the table's log has it."""

    path: str
    bytes: int
    rows: int
    deleted: int
    """Rows that a deletion vector hides."""
    first: str
    """Its dates (or parts), inclusive, as texts (`parts.text_of`); all if the log has no statistics."""
    last: str

    @property
    def days(self) -> range:
        """The file's dates as days since 0001-01-01, or the file's parts."""
        return range(place_of(self.first), place_of(self.last) + 1)


@dataclass(frozen=True)
class Share:
    """Dates whose rows share files of their own: one file, or, for a single date, several files by ranges of keys."""

    dates: list[str]
    files: int


def touched(files: Collection[File], dates: Sequence[str]) -> list[File]:
    """Return the files that may hold rows of some dates, which are in order."""

    def is_touched(file: File) -> bool:
        place = bisect_left(dates, file.first)
        return place < len(dates) and dates[place] <= file.last

    return [file for file in files if is_touched(file)]


def ragged(files: Collection[File], file_bytes: int) -> list[File]:
    """Return the files to rewrite together: a date's files if there are too many, small files if there are too many, and files that hide deleted rows."""
    small = [f for f in files if f.bytes < LEAST_BYTES // 2]
    found = {f.path for f in small} if len(small) > max(1, SPARE_FILES) else set()
    found |= {f.path for f in files if f.deleted > DELETED_SHARE * f.rows}
    crowded = _crowded(files, file_bytes)
    return [
        f for f in files if f.path in found or any(f.days.start < c.stop and c.start < f.days.stop for c in crowded)
    ]


def _crowded(files: Collection[File], file_bytes: int) -> list[range]:
    """Return the days with more files than their bytes need; a file's bytes count evenly for each of its days."""
    changes: dict[int, list[float]] = defaultdict(lambda: [0, 0.0])
    for file in files:
        share = file.bytes / len(file.days)
        for day, sign in ((file.days.start, 1), (file.days.stop, -1)):
            changes[day][0] += sign
            changes[day][1] += sign * share
    count, held, found = 0.0, 0.0, []
    for day, until in pairwise(sorted(changes)):
        count, held = count + changes[day][0], held + changes[day][1]
        if count > max(1, ceil(held / file_bytes - 1e-6)) + SPARE_FILES:
            found.append(range(day, until))
    return found


def shares(rows: Mapping[str, int], row_bytes: float, file_bytes: int, cores: int) -> list[Share]:
    """Divide dates, each with its number of rows, into shares: in order, each of at least LEAST_BYTES except the last.

    A date that would occupy a core for longer than the others is cut into more files, at most half of SPARE_FILES more
    than its bytes need.
    """
    total = sum(rows.values()) * row_bytes
    found: list[Share] = []
    dates: list[str] = []
    held = 0.0
    for day in sorted(rows):
        size = rows[day] * row_bytes
        if dates and held + size > file_bytes:
            found.append(Share(dates, 1))
            dates, held = [], 0.0
        dates.append(day)
        held += size
        if held >= LEAST_BYTES:
            alone = len(dates) == 1
            found.append(Share(dates, _files(size, total, file_bytes, cores) if alone else 1))
            dates, held = [], 0.0
    return [*found, Share(dates, 1)] if dates else found


def _files(size: float, total: float, file_bytes: int, cores: int) -> int:
    needed = ceil(size / file_bytes)
    # Only half of the spare files: the sizes are estimates, and the files written here must not be ragged at once.
    return max(needed, min(needed + SPARE_FILES // 2, round(cores * size / total), int(size // LEAST_BYTES)))
