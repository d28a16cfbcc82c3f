"""Replacements of slices (docs/rules.md, rule 132): a slice that was computed again replaces the stored one.

All of it is decided on the state before the batch, which a replacement's writer may not have seen: `seen` is the last batch
that it knew of. Windows are sent as for any change of a slice; those that a slice leaves without an event are deleted.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.columnar.axis import Axis
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import LOOKUP, Inputs
from sessionlake.operators.shared.windowing.emission import FOREVER, Firing
from sessionlake.operators.shared.windowing.slices import Pairs, SliceAxis, are_among, is_at, joined
from sessionlake.operators.windows.rules import blocks_of, grid_windows
from sessionlake.operators.windows.spec import Grid, Sliding, TimeWindows, WindowSpec
from sessionlake.store.lists import NONE_LISTED, Listed
from sessionlake.store.slices import Slices, SliceStore

RESTATED, NAMED = "restated", "named"
"""Kinds of the rows of restates: parts of slices, and slices whose closed windows are to be sent again."""
REPLACED, WITHHELD = "replaced", "withheld"
"""Kinds of the rows that go to shards: one for each replacement; and one for each closed window that it is not to send."""
REPLACED_SCHEMA = pa.schema(
    [
        ("correction_id", pa.string()),
        ("key", pa.string()),
        ("start_us", pa.int64()),
        ("seen", pa.int64()),
        ("stored", pa.bool_()),
        ("event_count", pa.int64()),
        ("state", pa.binary()),
    ]
)
"""`stored` says that the writer saw the slice; with an `event_count` of 0 the slice goes."""
ALWAYS = Firing("", -FOREVER, FOREVER, -1)
"""Windows of all times."""


@dataclass(frozen=True)
class Replacements:
    """The replacements of a shard that hold: of each slice one, ascending by (code, start)."""

    keys: pa.Array
    slices: Pairs
    count: Ints
    state: pa.Array
    known: Bools
    """Whether the slice is in the store."""
    blocks: Pairs
    """The blocks, (code, number), of all that may share a window with a replaced slice."""
    near: Slices
    """The stored slices in `blocks`."""
    stale: frozenset[str]
    """The ids of the replacements that are stale."""
    number: int
    """How many replacements there are, with the stale ones."""

    @property
    def goes(self) -> Bools:
        """Which slices go."""
        return self.count == 0

    def parts(self, spec: WindowSpec) -> Partials:
        """Return the replaced slices that are not stored, as partials: the batch merges them like events."""
        if not len(self.slices):
            return Partials.empty(spec.aggregates)
        at = np.flatnonzero(~self.goes & ~self.known)
        states = StateCodec(spec.aggregates).decode(self.state.take(pa.array(at)))
        start, zeros = self.slices.time[at], np.zeros(len(at), np.int64)
        keys = self.keys.take(pa.array(self.slices.codes[at]))
        return Partials(keys, start, start + spec.windows.slice_us - 1, self.count[at], zeros, states)

    def touched(self, windows: TimeWindows) -> Listed:
        """Return the stored slices that change: those that become something else, and all that share a window with one that goes."""
        if not len(self.slices):
            return NONE_LISTED
        gone, span = self.slices.take(self.goes), windows.span_us
        axis = SliceAxis(self.near)
        low, high = axis.between(gone.codes, gone.time - span + 1, gone.time + span - 1)
        # +1 at the first neighbour of each removed slice, -1 after its last one: a positive running sum marks neighbours.
        marks = np.zeros(len(self.near) + 1, np.int64)
        np.add.at(marks, low, 1)
        np.add.at(marks, high, -1)
        shares = np.cumsum(marks)[:-1] > 0
        shares[axis.rows_of(gone)] = False
        near = Pairs(self.near.codes, self.near["start"])
        found = joined([self.slices.take(~self.goes & self.known), near.take(shares)]).distinct()
        return Listed(found.time, self.keys.take(pa.array(found.codes)))

    def among(self, keys: pa.Array) -> "Replacements":
        """Return the same with the codes of a larger set of keys, ascending."""
        if not len(self.keys):
            return self
        code = pc.index_in(self.keys, value_set=keys).to_numpy(zero_copy_only=False).astype(np.int64)
        slices = Pairs(code[self.slices.codes], self.slices.time)
        blocks = Pairs(code[self.blocks.codes], self.blocks.time)
        return replace(
            self, keys=keys, slices=slices, blocks=blocks, near=replace(self.near, codes=code[self.near.codes])
        )

    def onto(self, stored: Slices) -> Slices:
        """Return stored slices without those that go, the others as they become; new ones are not among them."""
        if not len(self.slices):
            return stored
        axis = SliceAxis(stored)
        put = np.flatnonzero(~self.goes & self.known)
        rows = axis.rows_of(self.slices.take(put))
        head = stored.head.copy()
        head["count"][rows] = self.count[put]
        source = np.arange(len(stored))
        # The new states stand after the stored ones in the concatenated array.
        source[rows] = len(stored) + put
        state = pa.concat_arrays([stored.state, self.state]).take(pa.array(source))
        stays = np.ones(len(stored), bool)
        stays[axis.rows_of(self.slices.take(self.goes))] = False
        return Slices(stored.codes, head, state).take(np.flatnonzero(stays))

    def gone_from(self, slices: Slices) -> Slices:
        """Return the removed slices that no row of the batch has brought back."""
        if not len(self.slices):
            return Slices(self.slices.codes, np.zeros(0, slices.head.dtype), self.state)
        went = self.slices.take(self.goes)
        went = went.take(~are_among(went, Pairs(slices.codes, slices["start"])))
        head = np.zeros(len(went), slices.head.dtype)
        head["start"] = went.time
        return Slices(went.codes, head, pa.nulls(len(went), pa.binary()))

    def blocks_of_gone(self, windows: TimeWindows) -> Pairs:
        """Return the stored blocks, (code, number), that have a slice which goes."""
        if not len(self.slices):
            return self.slices
        went = self.slices.take(self.goes & self.known)
        return Pairs(went.codes, went.time // windows.block_us).distinct()

    def emptied(self, windows: TimeWindows, slices: Slices) -> Pairs:
        """Return the windows (code, start) that no longer exist, given all slices around after the batch."""
        if not len(self.slices):
            return self.slices
        gone, axis, before = self.slices.take(self.goes), SliceAxis(slices), SliceAxis(self.near)
        if isinstance(windows, Grid):
            asked = grid_windows(windows, gone, ALWAYS)
        else:
            asked = _made_near(windows, self.near, before, gone)
            asked = asked.take(_holds(before, asked, windows.span_us))
        there = _holds(axis, asked, windows.span_us)
        if isinstance(windows, Sliding):
            there &= _is_made(windows, slices, axis, asked)
        return asked.take(~there)


def replacements(spec: WindowSpec, inputs: Inputs, store: SliceStore, horizon_us: int) -> Replacements:
    """Return a shard's replacements and their outcomes; those of slices below the horizon are decided by rows of the tables.

    A replacement is stale if the slice changed after its writer read it, or is gone, or if a valid replacement with a lower
    correction_id names the same slice.
    """
    rows = inputs[REPLACED].combine_chunks()
    codes, keys = sorted_codes(rows["key"])
    asked = Pairs(codes, rows["start_us"].to_numpy())
    span = spec.windows.span_us
    # Slices that share a window with a slice lie at most a span before or after it.
    blocks = blocks_of(Pairs(asked.codes, asked.time - span), 2 * span + 1, spec.windows.block_us)
    near = store.find(keys, blocks.codes, blocks.time)
    near = near.take(np.flatnonzero(near["start"] >= horizon_us))
    at = SliceAxis(near).find(asked.codes, asked.time)
    known = is_at(near, at, asked)
    revision = np.full(len(asked), -1)
    revision[known] = near["revision"][at[known]]
    cold = np.flatnonzero(asked.time < horizon_us)
    if LOOKUP in inputs and len(cold):
        revision[cold] = _revisions(inputs[LOOKUP], keys, asked.take(cold))
    unseen = ~combined(rows["stored"]).to_numpy(zero_copy_only=False)
    # A missing slice fits a writer that saw none; a stored one fits if its last change is not after the batch `seen`.
    fits = np.where(revision < 0, unseen, revision <= rows["seen"].to_numpy())
    rank = np.empty(len(asked), np.int64)
    # Ids decide, not rows' order: rows come in any order, and a rerun must decide alike.
    rank[pc.sort_indices(combined(rows["correction_id"])).to_numpy()] = np.arange(len(asked))
    order = np.lexsort((rank, asked.time, asked.codes))
    order = order[fits[order]]
    some = asked.take(order)
    # Ordered by (code, time, id): the first row of each slice has the lowest id, and wins.
    first = (np.diff(some.codes, prepend=-1) != 0) | (np.diff(some.time, prepend=0) != 0)
    taken = order[first]
    left = np.ones(len(asked), bool)
    left[taken] = False
    return Replacements(
        keys,
        asked.take(taken),
        rows["event_count"].to_numpy()[taken],
        combined(rows["state"]).take(pa.array(taken)),
        known[taken],
        blocks,
        near,
        frozenset(combined(rows["correction_id"]).filter(pa.array(left)).to_pylist()),
        len(asked),
    )


def _revisions(handed_in: pa.Table, keys: pa.Array, asked: Pairs) -> Ints:
    """Return the revision of each slice that is one window, by the rows of the tables; -1 if there is none."""
    codes = pc.fill_null(pc.index_in(combined(handed_in["key"]), value_set=keys), -1).to_numpy().astype(np.int64)
    start, revision = (handed_in[name].to_numpy() for name in ("start_us", "revision"))
    order = np.lexsort((start, codes))
    order = order[codes[order] >= 0]
    # The extra -1 is the revision at the place after the last row, which find() may return.
    codes, start, revision = codes[order], start[order], np.append(revision[order], -1)
    at = Axis(codes, start).find(asked.codes, asked.time)
    found = at < len(codes)
    found[found] = (codes[at[found]] == asked.codes[found]) & (start[at[found]] == asked.time[found])
    return np.where(found, revision[at], -1)


def _holds(axis: SliceAxis, windows: Pairs, span_us: int) -> Bools:
    """Say which windows have a slice."""
    found: Bools = axis.find(windows.codes, windows.time + span_us) > axis.find(windows.codes, windows.time)
    return found


def _made_near(windows: Sliding, near: Slices, axis: SliceAxis, gone: Pairs) -> Pairs:
    """Return the windows that removed slices made, and windows that begin right after a near slice: they may have no event left."""
    found = [Pairs(gone.codes, gone.time - windows.size_us)]
    if windows.exits:
        low, high = axis.between(gone.codes, gone.time - windows.span_us, gone.time)
        marks = np.zeros(len(near) + 1, np.int64)
        np.add.at(marks, low, 1)
        np.add.at(marks, high, -1)
        makers = np.flatnonzero(np.cumsum(marks)[:-1] > 0)
        found.append(Pairs(near.codes[makers], near["start"][makers] + 1))
    return joined(found).distinct()


def _is_made(windows: Sliding, slices: Slices, axis: SliceAxis, asked: Pairs) -> Bools:
    """Say which windows that have an event are made by a slice: one at their end, or one right before their start."""

    def there(time: Ints) -> Bools:
        pairs = Pairs(asked.codes, time)
        return is_at(slices, axis.find(pairs.codes, pairs.time), pairs)

    ends = there(asked.time + windows.size_us)
    return ends | there(asked.time - 1) if windows.exits else ends
