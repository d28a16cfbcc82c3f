"""A shard's part of a batch of windows by count: its series, their messages, and the numbers of the messages."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.engine.operator import Inputs
from sessionlake.operators.counts.mapper import MESSAGES
from sessionlake.operators.counts.rules import Messages, Numbers
from sessionlake.operators.counts.series import keys_of, partitions_of
from sessionlake.operators.counts.spec import CountSpec
from sessionlake.store.slices import Slices
from sessionlake.stream.positions import CHUNK, ROW, Numbering


@dataclass(frozen=True)
class Batch:
    """The input of a shard's computation: the series of the batch, by code, and their messages."""

    batch_id: int
    clock_us: int
    early: bool
    """Whether current windows are sent."""
    since: int
    """The last batch with an early tick: later changes are not sent yet."""
    series: pa.Array
    """Distinct series, ascending, as bytes (`series_of`)."""
    numbers: Numbers
    messages: Messages
    newest: Ints
    """Of each series the newest event time."""
    stored: Slices
    place: Ints
    listed: Bools
    """Of each series whether a list names it."""

    @property
    def keys(self) -> pa.Array:
        """The key of each series."""
        return keys_of(self.series)


def messages_of(spec: CountSpec, inputs: Inputs) -> tuple[Partials, Ints, Ints]:
    """Return a batch's messages, and the chunk and row of each."""
    none = np.zeros(0, np.int64)
    if MESSAGES not in inputs:
        return Partials.empty(spec.aggregates), none, none
    table = inputs[MESSAGES].combine_chunks()
    chunk, row = (combined(table[name]).to_numpy() for name in (CHUNK, ROW))
    return Partials.from_table(table.drop_columns([CHUNK, ROW])), chunk, row


def numbers_by_key(stored: Slices, counts: Ints, arrival: Ints) -> Numbers:
    """Return the numbers of series by key: a new one begins with its first message's number among all that were accepted.

    `counts` are the batch's messages of each series; `arrival` is by series, and within that ascending. So no number below is
    used by the key again, also if earlier messages were forgotten.
    """
    first = _since(stored, counts, arrival)
    before = first - 1
    # A series' slices are ascending: its last one is written last.
    before[stored.codes] = stored["last"]
    return Numbers(first, first, before, before + counts)


def numbers_by_partition(stored: Slices, counts: Ints, number: Ints, series: pa.Array, numbering: Numbering) -> Numbers:
    """Return the numbers of series by partition: messages of all keys of the partition count.

    `counts` are the batch's messages of each series; `number` is theirs in the partition, by series, and within that ascending.
    """
    known, place = np.unique(partitions_of(series), return_inverse=True)
    before, after = (
        np.array([accepted.get(p, 0) for p in known.tolist()], np.int64)[place.reshape(-1)]
        for accepted in (numbering.before, numbering.after)
    )
    return Numbers(np.ones(len(series), np.int64), _since(stored, counts, number), before, after)


def _since(stored: Slices, counts: Ints, number: Ints) -> Ints:
    """Return the number of the first message of each series since it is known; `number` is by series, and within that ascending."""
    since = np.zeros(len(counts), np.int64)
    some = counts > 0
    since[some] = number[(np.cumsum(counts) - counts)[some]]
    since[stored.codes] = stored["first"]
    return since
