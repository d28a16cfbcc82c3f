"""The rules of a join of tables (docs/rules.md, rules 309 and 323 to 326) as functions of columns; no store, no clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Bools, Ints, concatenated, is_among, within_group
from sessionlake.columnar.texts import text_order
from sessionlake.errors import PipelineStateError, StoreError
from sessionlake.operators.shared.sides.names import LEFT, RIGHT, SIDES, other_of
from sessionlake.operators.table_joins.store import SideRows

LIMIT = 50_000_000
"""Results of a shard and batch that change."""
ROW_BITS = 32
"""A position is the batch that gave it times 2^32, plus a number of its key and side in that batch, from 1."""


@dataclass(frozen=True)
class SideChange:
    """The change of one side's rows, each part by (code, position)."""

    removed: SideRows
    added: SideRows
    """A row that follows a removed one of its key has its position."""
    kept: SideRows
    """The other stored rows, as far as they were read."""
    before: Ints
    """By code how many rows there were."""
    after: Ints
    """By code how many rows there are."""


def net(stored: SideRows, codes: Ints, signs: Ints, content: pa.Array, batch_id: int) -> tuple[Ints, SideRows]:
    """Return which stored rows a batch's signed rows remove, and the rows that they add.

    A row with sign -1 removes one of the equal rows of its key: the one with the least position. PipelineStateError if there are fewer
    equal rows than are taken back.
    """
    # Only stored rows whose key the batch names can be removed.
    near = np.flatnonzero(is_among(stored.codes, codes))
    n = len(near)
    both = concatenated([stored.content.take(pa.array(near)), content]).dictionary_encode()
    value = both.indices.to_numpy().astype(np.int64)
    code = np.concatenate([stored.codes[near], codes])
    position = np.concatenate([stored.position[near], np.full(len(codes), np.iinfo(np.int64).max)])
    order = np.lexsort((position, value, code))
    code, value = code[order], value[order]
    starts = np.flatnonzero((np.diff(code, prepend=-1) != 0) | (np.diff(value, prepend=-1) != 0))
    if not len(starts):
        return np.zeros(0, np.int64), SideRows.empty()
    is_stored = order < n
    sign = np.concatenate([np.zeros(n, np.int64), signs])[order]
    have, change = (np.add.reduceat(column, starts) for column in (is_stored.astype(np.int64), sign))
    if (have + change < 0).any():
        raise PipelineStateError(
            "table_join: rows are taken back that were not given, so a source is not the one that was read before; compute the join again: `sessionlake rebuild CONFIG --warehouse NEW`"
        )
    # The stored rows of a group come first, by position.
    sizes = np.diff(starts, append=len(order))
    removed = near[order[is_stored & (within_group(sizes) < np.repeat(np.maximum(-change, 0), sizes))]]
    number = np.maximum(change, 0)
    added = concatenated([both.dictionary.take(pa.array(value[starts]))]).take(
        pa.array(np.repeat(np.arange(len(starts)), number))
    )
    return np.sort(removed), _placed(stored.take(np.sort(removed)), np.repeat(code[starts], number), added, batch_id)


def _placed(removed: SideRows, codes: Ints, content: pa.Array, batch_id: int) -> SideRows:
    """Return added rows with their positions: those of removed rows of their key, then new ones, in the order of their contents."""
    rank = np.empty(len(content), np.int64)
    rank[text_order(content)] = np.arange(len(content))
    order = np.lexsort((rank, codes))
    codes, content = codes[order], content.take(pa.array(order))
    within = _within(codes)
    first = np.searchsorted(removed.codes, codes)
    number = np.searchsorted(removed.codes, codes, "right") - first
    position = (batch_id << ROW_BITS) + within - number + 1
    follows = within < number
    position[follows] = removed.position[(first + within)[follows]]
    return SideRows(codes, position, content).take(np.lexsort((position, codes)))


def _within(codes: Ints) -> Ints:
    """Return the number of each row among those of its code, from 0; codes are sorted."""
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    return within_group(np.diff(starts, append=len(codes)))


@dataclass(frozen=True)
class Results:
    """Results by the rows that they are of: places among the rows of each side, -1 for none."""

    codes: Ints
    left: Ints
    right: Ints

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Ints) -> "Results":
        """Return the given results, in that order."""
        return Results(self.codes[rows], self.left[rows], self.right[rows])


def _joined(parts: list[Results]) -> Results:
    codes, left, right = (np.concatenate([getattr(part, n) for part in parts]) for n in ("codes", "left", "right"))
    return Results(codes, left, right)


@dataclass(frozen=True)
class Changed:
    """The results that a batch changes, of rows of both sides (`of`)."""

    of: Mapping[str, SideRows]
    upserts: Results
    deleted: Results
    """Those that were there before, and are not any more."""


def changed(changes: Mapping[str, SideChange], lone: Bools, outer: tuple[str, ...]) -> Changed:
    """Return the results that change. By code, `lone` says that its rows have no partner whatever there is: a field is null.

    StoreError if they are more than LIMIT.
    """
    of, place = {}, {}
    for side, change in changes.items():
        parts = (change.removed, change.added, change.kept)
        cuts = np.cumsum([0, *(len(part) for part in parts)])
        of[side] = SideRows(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.position for part in parts]),
            concatenated([part.content for part in parts]),
        )
        place[side] = {name: np.arange(cuts[i], cuts[i + 1]) for i, name in enumerate(("removed", "added", "kept"))}

    def some(side: str, *names: str) -> Ints:
        """Return places of rows, by code."""
        at = np.concatenate([place[side][name] for name in names])
        return at[np.argsort(of[side].codes[at], kind="stable")]

    def paired(left: Ints, right: Ints) -> tuple[Ints, Ints]:
        return left[~lone[of[LEFT].codes[left]]], right[~lone[of[RIGHT].codes[right]]]

    left, right = (of[side].codes for side in SIDES)
    new = [
        paired(some(LEFT, "added"), some(RIGHT, "kept", "added")),
        paired(some(LEFT, "kept"), some(RIGHT, "added")),
    ]
    old = [
        paired(some(LEFT, "removed"), some(RIGHT, "kept", "removed")),
        paired(some(LEFT, "kept"), some(RIGHT, "removed")),
    ]
    _check_number(left, right, [*new, *old])
    upserts = [_cross(left, right, *pair) for pair in new]
    gone = [_cross(left, right, *pair) for pair in old]
    for side in outer:
        others = changes[other_of(side)]
        was, now = (lone | (number == 0) for number in (others.before, others.after))
        codes = of[side].codes
        for rows, added, kept in (
            (upserts, now[codes[place[side]["added"]]], (now & ~was)[codes[place[side]["kept"]]]),
            (gone, was[codes[place[side]["removed"]]], (was & ~now)[codes[place[side]["kept"]]]),
        ):
            first = place[side]["added" if rows is upserts else "removed"]
            at = np.concatenate([first[added], place[side]["kept"][kept]])
            none = np.full(len(at), -1)
            rows.append(Results(codes[at], *((at, none) if side == LEFT else (none, at))))
    put, before = _joined(upserts), _joined(gone)
    return Changed(of, put, before.take(np.flatnonzero(~_among(of, before, put))))


def _check_number(left: Ints, right: Ints, pairs: list[tuple[Ints, Ints]]) -> None:
    number = 0
    for a, b in pairs:
        of_right = right[b]
        number += int((np.searchsorted(of_right, left[a], "right") - np.searchsorted(of_right, left[a])).sum())
    if number > LIMIT:
        raise StoreError(
            f"pipeline.shards: {number} results of one shard change in a batch, which are more than {LIMIT}; raise it, or name more "
            "equal fields in table_join.on, or lower max_bytes_per_batch of its sources"
        )


def _cross(left: Ints, right: Ints, a: Ints, b: Ints) -> Results:
    """Return all pairs of equal codes of some places of left and of right, each by code."""
    of_right = right[b]
    first = np.searchsorted(of_right, left[a])
    number = np.searchsorted(of_right, left[a], "right") - first
    at = np.repeat(a, number)
    return Results(left[at], at, b[np.repeat(first, number) + within_group(number)])


def _among(of: Mapping[str, SideRows], some: Results, others: Results) -> Bools:
    """Say which results are among others, by their codes and positions."""
    return are_among(*([each.codes, *(positions(of, each, side) for side in SIDES)] for each in (some, others)))


def are_among(some: Sequence[Ints], others: Sequence[Ints]) -> Bools:
    """Say which rows of columns are among other rows.

    >>> are_among([np.array([1, 2]), np.array([5, 6])], [np.array([2, 1]), np.array([6, 6])]).tolist()
    [False, True]
    """
    n = len(some[0])
    columns = [np.concatenate(pair) for pair in zip(some, others, strict=True)]
    is_some = np.arange(len(columns[0])) < n
    order = np.lexsort((is_some, *columns))
    new = np.ones(len(order), bool)
    new[1:] = np.logical_or.reduce([np.diff(column[order]) != 0 for column in columns])
    # Within equal rows the others come first, so a group is among them if its first row is.
    group = np.cumsum(new) - 1
    found = np.empty(len(order), bool)
    found[order] = ~is_some[order][new][group]
    return found[:n]


def positions(of: Mapping[str, SideRows], results: Results, side: str) -> Ints:
    """Return the positions of the rows of a side that results are of; 0 for none."""
    at = results.left if side == LEFT else results.right
    known = of[side].position
    return np.where(at >= 0, known[at] if len(known) else 0, 0)
