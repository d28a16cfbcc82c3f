"""Lists of windows by count: series whose changes wait for an early tick, and windows that other keys' messages fill."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, distinct, is_among
from sessionlake.operators.counts.batch import Batch
from sessionlake.operators.counts.rules import Merged, Numbers, all_windows, is_waiting, new_windows
from sessionlake.operators.counts.series import partitions_of
from sessionlake.operators.counts.spec import CountSpec, Grid, Sessions, Sliding
from sessionlake.operators.shared.windowing.emission import UNSENT_EARLY
from sessionlake.store.lists import restored_list
from sessionlake.store.series import SeriesStore
from sessionlake.store.slices import Slices
from sessionlake.stream.positions import Numbering

_EARLY, _DUE = "E", "F"
"""The stores' letters of the lists: of series whose changes wait for an early tick, and of windows that other keys' messages fill."""


@dataclass(frozen=True)
class UnsentLists:
    """The lists of one shard's store."""

    spec: CountSpec
    store: SeriesStore

    def named(self, numbering: Numbering, *, early: bool) -> list[pa.Array]:
        """Return the series that lists name which are due in a batch; `early` if current windows are sent."""
        found = []
        if early and self._waits_early:
            found.append(self.store.lists(_EARLY, 0, 1).keys.cast(pa.binary()))
        for partition, after in sorted(numbering.after.items()):
            before = numbering.before.get(partition, 0)
            if after > before and self._lists_dues:
                low, high = self._due(before), self._due(after)
                found.append(self.store.lists(_letter(partition), low, high).keys.cast(pa.binary()))
        return found

    def kept(self, batch: Batch, merged: Merged, numbering: Numbering) -> tuple[list[pa.Table], dict[str, int]]:
        """Return the writes that keep the lists up to date, and how many changes wait to be sent."""
        tables, unsent = self._early_writes(batch, merged) if self._waits_early else ([], {})
        if self._lists_dues:
            windows = self.spec.windows
            for partition, after in sorted(numbering.after.items()):
                until = self._due(after)
                if isinstance(windows, Grid):
                    until += windows.advance - 1  # a list is of one start
                tables.append(self.store.list_deletes(self.store.ended_lists(_letter(partition), until)))
            tables += self._due_writes(batch.series, merged.slices, batch.numbers, batch.batch_id, merged)
        return tables, unsent

    def restored(self, series: pa.Array, slices: Slices, since: Ints, part: int) -> list[pa.Table]:
        """Return the writes of lists that name all slices of a part of a restore; `since` has the number of each series' first message."""
        # The frontiers do not matter here: a later batch finds that a listed window is full, and removes it from the list.
        never = np.full(len(series), -(1 << 60))
        number = restored_list(part)
        lists = self._due_writes(series, slices, Numbers(since * 0 + 1, since, never, never), number)
        if self._waits_early:
            lists.insert(0, self.store.list_writes(_EARLY, number, np.zeros(len(series), np.int64), series))
        return lists

    @property
    def _waits_early(self) -> bool:
        """Whether changes of current windows wait for a tick."""
        return isinstance(self.spec.emit.early, int)

    @property
    def _lists_dues(self) -> bool:
        """Whether windows get full while no message of their key comes."""
        return not self.spec.per_key and not isinstance(self.spec.windows, Sliding)

    def _due(self, frontier: int) -> int:
        """Return the bound below which lists start whose windows and sessions are full at a frontier of the partition.

        The start of a window's list is its distance from the first window's start. For a session it is its last number.
        """
        windows = self.spec.windows
        if isinstance(windows, Sessions):
            return frontier - windows.gap + 1
        assert isinstance(windows, Grid)  # noqa: S101 (nothing else is listed)
        return frontier - windows.size - windows.offset + 1

    def _early_writes(self, batch: Batch, merged: Merged) -> tuple[list[pa.Table], dict[str, int]]:
        """Return the writes of the list of series that wait for a tick, and how many changes do; at a tick it ends."""
        if batch.early:
            return [self.store.list_deletes(self.store.ended_lists(_EARLY, self.store.bucket))], {}
        windows, numbers, stored = self.spec.windows, batch.numbers, batch.stored
        waits = merged.changed & is_waiting(windows, merged.slices, numbers.first, numbers.after)
        known = is_waiting(windows, stored, numbers.first, numbers.before) & (stored["revision"] > batch.since)
        new = distinct(merged.slices.codes[waits])
        new = new[~is_among(new, stored.codes[known])]
        named = batch.series.take(pa.array(new))
        return [self.store.list_writes(_EARLY, batch.batch_id, new * 0, named)], {UNSENT_EARLY: int(waits.sum())}

    def _due_writes(
        self, series: pa.Array, slices: Slices, numbers: Numbers, batch_id: int, merged: Merged | None = None
    ) -> list[pa.Table]:
        """Return the writes of lists of the windows or sessions that get full later: all that slices have, or a batch's new ones."""
        windows = self.spec.windows
        if not self._lists_dues or not len(series):
            return []
        if isinstance(windows, Sessions):
            rows = np.flatnonzero(
                is_waiting(windows, slices, numbers.first, numbers.after) & (True if merged is None else merged.changed)
            )
            codes, start = slices.codes[rows], slices["last"][rows]
        else:
            assert isinstance(windows, Grid)  # noqa: S101 (nothing else is listed)
            found = all_windows(windows, slices, numbers) if merged is None else new_windows(windows, merged, numbers)
            codes, start = found.codes, found.time - 1 - windows.offset
        partition = partitions_of(series)[codes]
        return [
            self.store.list_writes(
                _letter(p), batch_id, start[partition == p], series.take(pa.array(codes[partition == p]))
            )
            for p in np.unique(partition).tolist()
        ]


def _letter(partition: int) -> str:
    """Return the kind of the lists of a partition; of one width, so that none is another's beginning."""
    return f"{_DUE}{partition:08x}"
