"""A shard's part of a batch, planned from its rows and the store's lists: the slices that change, the windows that may be sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.partials import Partials, concat
from sessionlake.columnar.arrays import combined, plain_text
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import Inputs
from sessionlake.operators.shared.windowing import emission
from sessionlake.operators.shared.windowing.batch_times import BatchTimes
from sessionlake.operators.shared.windowing.emission import Firing, corrected, firings
from sessionlake.operators.shared.windowing.slices import NO_PAIRS, Pairs, joined
from sessionlake.operators.shared.windowing.tombstones import REMOVE
from sessionlake.operators.windows.mapper import PARTS
from sessionlake.operators.windows.replace import NAMED, REPLACED, RESTATED, WITHHELD, Replacements, replacements
from sessionlake.operators.windows.rules import blocks_of, grid_windows, listed_times, read_around
from sessionlake.operators.windows.spec import Grid, WindowSpec
from sessionlake.store.lists import NONE_LISTED, Listed, listed_together
from sessionlake.store.slices import SliceStore


@dataclass(frozen=True)
class Plan:
    """The slices that a batch may change, and the windows that it may send. Each is a pair of a key's code and a start."""

    keys: pa.Array
    """All keys that the batch names, each once, ascending. A code is the place of a key among them."""
    parts: Partials
    """Partial aggregates of slices, several of a slice if several map tasks had events of it."""
    slices: Pairs
    """The slice of each part."""
    touched: Pairs
    """Stored slices that change by replacements, with or without parts of theirs."""
    withheld: Pairs
    """Closed windows that the batch must not send again."""
    firings: Sequence[Firing]
    candidates: Sequence[Pairs]
    """For each firing: windows on a grid that it may send; of sliding windows the slices that they have or are made by."""
    blocks: Pairs
    """The blocks of the store, (code, number), to read: those of all slices that change or that a candidate has."""
    replaced: Replacements | None
    """None if the batch has no replacements, as almost every batch."""


def planned(spec: WindowSpec, inputs: Inputs, store: SliceStore, times: BatchTimes) -> Plan:
    """Return the plan of a shard's part of a batch; only lists and replaced slices are read from the store."""
    fired = _firings(spec, inputs, times)
    horizon_us = times.before.horizon_us(spec.windows.span_us)
    replaced = replacements(spec, inputs, store, horizon_us) if REPLACED in inputs else None
    put = Partials.empty(spec.aggregates) if replaced is None else replaced.parts(spec)
    parts = _parts(inputs, put)
    named = {"parts": Listed(parts.start, plain_text(parts.keys))}
    named |= {kind: _named(inputs[kind]) for kind in (NAMED, REMOVE, WITHHELD, REPLACED) if kind in inputs}
    if replaced is not None:
        named |= {"put": Listed(put.start, put.keys), "touched": replaced.touched(spec.windows)}
    named |= {f"waits for {one.trigger}": _waiting(spec, store, one, times.after.watermark_us) for one in fired}
    keys, pairs = coded(named)

    def of(name: str) -> Pairs:
        return pairs.get(name, NO_PAIRS)

    replaced = None if replaced is None else replaced.among(keys)
    changed = joined([of("parts"), of("touched")])
    restated = joined([of(NAMED), of("put"), of("touched")])
    candidates = [
        (restated if one.trigger == emission.RESTATE else joined([changed, of(f"waits for {one.trigger}")])).distinct()
        for one in fired
    ]
    if isinstance(spec.windows, Grid):
        candidates = [grid_windows(spec.windows, some, one) for some, one in zip(candidates, fired, strict=True)]
    # A tombstone also deletes the slice of its window if the window is one slice.
    written = joined([changed, of(REMOVE)]) if spec.slices_are_windows else changed
    blocks = [*_blocks(spec, written, candidates, fired), *([] if replaced is None else [replaced.blocks])]
    return Plan(
        keys,
        parts,
        of("parts"),
        of("touched"),
        of(WITHHELD),
        fired,
        candidates,
        joined(blocks).distinct(),
        replaced,
    )


def coded(named: Mapping[str, Listed]) -> tuple[pa.Array, dict[str, Pairs]]:
    """Return all keys of some sets of slices, ascending, and each set with the places of its keys among them."""
    some = {name: one for name, one in named.items() if len(one)}
    codes, keys = sorted_codes(pa.chunked_array([one.keys for one in some.values()], pa.string()))
    # The codes of all sets are concatenated: each set is cut out again in the same order.
    found, first = {}, 0
    for name, one in some.items():
        found[name] = Pairs(codes[first : first + len(one)], one.start)
        first += len(one)
    return keys, found


def _firings(spec: WindowSpec, inputs: Inputs, times: BatchTimes) -> list[Firing]:
    """Return the firings of the batch; closed windows are sent only if corrections send them again."""
    found = firings(spec.emit, times.before, times.after, times.ticks, times.batch_id)
    if NAMED in inputs or REPLACED in inputs:
        # Since the batch before: a slice that this batch changes is unsent.
        found.append(corrected(times.before, times.batch_id))
    return found


def _parts(inputs: Inputs, put: Partials) -> Partials:
    """Return the parts of events, of restates, and of slices that replacements put."""
    given = [Partials.from_table(inputs[kind]) for kind in (PARTS, RESTATED) if kind in inputs]
    some = [part for part in (*given, put) if len(part)]
    return concat(some) if some else put


def _named(rows: pa.Table) -> Listed:
    """Return the slices that rows name."""
    return Listed(rows["start_us"].to_numpy(), combined(rows["key"]))


def _waiting(spec: WindowSpec, store: SliceStore, firing: Firing, frontier_us: int) -> Listed:
    """Return the slices that lists name and that windows of a firing have or are made by."""
    times = listed_times(spec.windows, firing, frontier_us) if firing.lists else None
    if times is None:
        return NONE_LISTED
    low, high = times
    found = listed_together([store.lists(letter, low, high) for letter in firing.lists])
    # Lists are read by buckets, which may reach beyond the bounds.
    return found.take(np.flatnonzero((found.start >= low) & (found.start < high)))


def _blocks(spec: WindowSpec, written: Pairs, candidates: Sequence[Pairs], fired: Sequence[Firing]) -> list[Pairs]:
    """Return the blocks of the slices that the batch writes, and of the slices of windows that it may send."""
    windows, block_us = spec.windows, spec.windows.block_us
    asked = [Pairs(written.codes, written.time // block_us)]
    for some, one in zip(candidates, fired, strict=True):
        if isinstance(windows, Grid):
            asked.append(blocks_of(some, windows.span_us, block_us))
        else:
            asked.append(read_around(windows, some, one))
    return asked
