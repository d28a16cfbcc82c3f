"""Size of tables, by their Delta logs alone: rows, bytes and times of the files that readers of the latest rows read."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sessionlake.warehouse.changelog import FOLD, Changelog
from sessionlake.warehouse.dialects import DAY_US
from sessionlake.warehouse.lake import Lake, LakeTable


@dataclass(frozen=True)
class Extent:
    """The files that hold the latest rows of a changelog."""

    rows: int | None
    """Their rows. Some may be earlier versions of others. None if a file does not say how many it has."""
    exact: bool
    """Whether each row is a latest row."""
    first_us: int | None
    """The least start, in microseconds; None if a file does not say it, or if starts are no times."""
    last_us: int | None
    """The greatest end, likewise."""


@dataclass(frozen=True)
class _File:
    rows: int | None
    size: int
    batch: int | None
    first_us: int | None
    last_us: int | None


class Extents:
    """A warehouse's table extents. Each table's log is read once."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._found: dict[str, list[_File]] = {}

    def latest(self, of: Changelog) -> Extent:
        """Return what the latest rows of a changelog take."""
        changed = self._unfolded(of)
        files = [*self._files(of.snapshot, of), *changed]
        counts, firsts, lasts = ([getattr(one, name) for one in files] for name in ("rows", "first_us", "last_us"))
        rows = _all(counts, sum) if files else 0
        return Extent(rows, not changed and not of.keeps_deletions, _all(firsts, min), _all(lasts, max))

    def restored(self, of: Changelog, from_us: int, *, more: Iterable[str] = ()) -> int:
        """Return about how many bytes a restore of all stores reads.

        `of` is the changelog of the state; rows that end before `from_us`, microseconds, need not be restored. `more` are further tables.
        """
        whole = sum(self._lake[name].size()[1] for name in {*of.state, *more} if self._lake[name].exists())
        if of.state:
            return whole
        by_time = of.has_times and of.start in of.identity
        # Old rows are left out by whole files, the snapshot's by days.
        files = (*self._files(of.snapshot, of), *self._unfolded(of))
        return whole + sum(
            one.size for one in files if not by_time or one.last_us is None or one.last_us >= from_us - DAY_US
        )

    def first_batch(self, name: str) -> int | None:
        """Return the first batch whose rows a table has; None if it has none, or a file does not say it."""
        return _all([file.batch for file in self._files(name)], min)

    def _unfolded(self, of: Changelog) -> list[_File]:
        """Return the files of the changelog that the snapshot has not taken in."""
        fold = self._lake[of.snapshot].app_version(FOLD)
        files = self._files(of.changes, of)
        return files if fold is None else [file for file in files if file.batch is None or file.batch > fold]

    def _files(self, name: str, of: Changelog | None = None) -> list[_File]:
        """Return the live files of a table; `of` is the changelog that it belongs to."""
        if name not in self._found:
            table = self._lake[name]
            times = (f"min.{of.start}", f"max.{of.end}") if of is not None and of.has_times else ("", "")
            self._found[name] = _live_files(table, times) if table.exists() else []
        return self._found[name]


def _live_files(table: LakeTable, times: tuple[str, str]) -> list[_File]:
    """Return a table's files; `times` are the columns of their least start and greatest end, empty for none."""
    actions = pa.table(table.open().get_add_actions(flatten=True))

    def values(name: str) -> list[Any]:
        if name not in actions.column_names:
            return [None] * actions.num_rows
        column = actions[name]
        return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()

    columns = map(values, ("num_records", "size_bytes", "min.batch_id", *times))
    return [_File(*each) for each in zip(*columns, strict=True)]


def _all(values: Iterable[int | None], of: Any) -> int | None:
    """Return the sum, least or greatest of values; None if there are none, or a value is not known."""
    known = [*values]
    return None if not known or None in known else int(of(known))
