"""Which of a key's updates holds: the greatest, in a total order of all that may ever come (docs/rules.md, rule 152)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, distinct, ranks, within_group
from sessionlake.columnar.equality import BY_TEXT, IdOrder
from sessionlake.columnar.groups import group_events
from sessionlake.errors import PipelineStateError


@dataclass(frozen=True)
class Versions:
    """Updates of keys in columns, as far as order goes."""

    time: Ints
    offset: Ints
    """Zero if the source has none."""
    deleted: Bools
    """Which versions delete their key."""
    ids: Callable[[Ints], pa.Array]
    """The events' ids at some places, text, empty for none; asked for if times and offsets are equal."""
    packed: Callable[[Ints], pa.Array]
    """The values at some places, bytes, empty of deletes; asked for likewise."""
    id_order: IdOrder = BY_TEXT

    def take(self, rows: Ints) -> "Versions":
        """Return the given rows, in that order."""
        return Versions(
            self.time[rows],
            self.offset[rows],
            self.deleted[rows],
            lambda at: self.ids(rows[at]),
            lambda at: self.packed(rows[at]),
            self.id_order,
        )

    def places(self, *, by_offset: bool) -> tuple[Ints, Ints]:
        """Return the first and the second column of the order: time and offset, or offset and time."""
        return (self.offset, self.time) if by_offset else (self.time, self.offset)


def latest(codes: Ints, versions: Versions, *, by_offset: bool) -> Ints:
    """Return the row of the greatest version of each code, ascending by code.

    For example, code 0 has versions of the times 5 and 7, code 1 one of the time 6:

    >>> texts = lambda at: pa.array([""] * len(at))
    >>> bytes_ = lambda at: pa.array([b""] * len(at))
    >>> versions = Versions(np.array([5, 7, 6]), np.zeros(3, np.int64), np.zeros(3, bool), texts, bytes_)
    >>> latest(np.array([0, 0, 1]), versions, by_offset=False).tolist()
    [1, 2]
    """
    first, second = versions.places(by_offset=by_offset)
    if len(codes) == int(codes.max(initial=-1)) + 1 == len(places := distinct(codes)):
        # All codes differ, as in most batches: no sort is needed.
        places[codes] = np.arange(len(codes))
        return places
    order, starts = group_events(codes, first, 0)
    if not len(order):
        return order
    code = codes[order[starts]]
    # Groups are ascending by (code, first): the last group of each code has its greatest version.
    last = np.flatnonzero(np.diff(code, append=code[-1] + 1))
    sizes = np.diff(starts, append=len(order))[last]
    begin = starts[last]
    winners: Ints = order[begin]
    tied = np.flatnonzero(sizes > 1)
    if len(tied):
        group = np.repeat(np.arange(len(tied)), sizes[tied])
        rows = order[np.repeat(begin[tied], sizes[tied]) + within_group(sizes[tied])]
        # lexsort's last key sorts first: by group, then the second column, the id, deletion, and the packed values.
        keys = (
            ranks(versions.packed(rows)),
            versions.deleted[rows],
            versions.id_order.ranks(versions.ids(rows)),
            second[rows],
            group,
        )
        ranked = np.lexsort(keys)
        winners[tied] = rows[ranked[np.cumsum(sizes[tied]) - 1]]
    return winners


def compared(new: Versions, old: Versions, *, by_offset: bool) -> Ints:
    """Return for each pair of versions 1 if the new one is greater, -1 if it is less, 0 if they are equal."""
    (first, second), (first_old, second_old) = (v.places(by_offset=by_offset) for v in (new, old))
    result = _sign(first, first_old)
    ties = np.flatnonzero(result == 0)
    if len(ties):
        result[ties] = _sign(second[ties], second_old[ties])
        ties = ties[result[ties] == 0]
    if len(ties):
        found = new.id_order.compared(new.ids(ties), old.ids(ties))
        for more in (
            _sign(new.deleted[ties].astype(np.int64), old.deleted[ties].astype(np.int64)),
            _sign_of(new.packed(ties), old.packed(ties)),
        ):
            found = np.where(found == 0, more, found)
        result[ties] = found
    return result


def require_comparable(codes: Ints, partition: Ints) -> None:
    """Raise PipelineStateError if records of one code have their offsets from several partitions."""
    order = np.argsort(codes, kind="stable")
    codes, partition = codes[order], partition[order]
    apart = np.flatnonzero((codes[1:] == codes[:-1]) & (partition[1:] != partition[:-1]))
    if len(apart):
        first, second = partition[apart[0]], partition[apart[0] + 1]
        raise PipelineStateError(
            f"table.order: a key has records in the partitions {min(first, second)} and {max(first, second)} of the topic, whose offsets can't be compared "
            "(were partitions added?); write order = 'time', and rebuild the table: `sessionlake rebuild CONFIG --warehouse NEW --from-topic`"
        )


def require_one_row(codes: Ints, net: Ints, stored: Ints, deleted: Ints, told: str) -> None:
    """Raise PipelineStateError, with the text `told`, if a key has two rows after its updates.

    `net` are the rows that were added by an update's task, less those that were taken back. `stored` are the distinct codes that
    have a row before, `deleted` those whose last update is a row that is taken back.
    """
    number = sums(codes, net)
    number[stored[stored < len(number)]] += 1
    # A row that is left after the last one was taken back is another one, which came before.
    if (number > 1).any() or (number[deleted] > 0).any():
        raise PipelineStateError(told)


def sums(codes: Ints, numbers: Ints) -> Ints:
    """Return the sum of the numbers of each code from 0 on."""
    found = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    np.add.at(found, codes, numbers)
    return found


def _sign(new: Ints, old: Ints) -> Ints:
    return (new > old).astype(np.int64) - (new < old)


def _sign_of(new: pa.Array, old: pa.Array) -> Ints:
    greater, less = (of(new, old).to_numpy(zero_copy_only=False).astype(np.int64) for of in (pc.greater, pc.less))
    return greater - less
