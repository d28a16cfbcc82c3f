"""Pairs that wait until their window is full, in tumbling and hopping joins (docs/rules.md, rule 295).

For example, the pairs of `[12:00, 12:10)` are sent together once the watermark is 12:10. A message is due when the first window that
has it is full. That follows from its time, so that neither a flag nor a table says so. Messages that wait are named in lists, by the
end of that window.
"""

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.operators.joins.axis import grid_of
from sessionlake.operators.joins.rules import JoinProgress
from sessionlake.operators.joins.spec import JoinSpec
from sessionlake.operators.shared.windowing.emission import Ticks
from sessionlake.store.blocks import block_number
from sessionlake.store.messages import IS_LATE, ListedMessages, Messages, MessageStore

_LISTS = b"F"
"""The first byte of the names of lists."""
_LEAST_STRETCH_US = 1_000_000
"""Windows whose ends lie nearer have a list together."""


def waits(spec: JoinSpec, before: JoinProgress, messages: Messages) -> Bools:
    """Say which stored messages were not due up to a batch."""
    late = messages.has(IS_LATE)
    # Of a policy with a period: those that came after the batch since which its list has waited.
    since = np.where(late, before.waiting_since(1), before.waiting_since(0))
    found: Bools = messages["revision"] > since
    if before.full_us is None:
        return found
    return found & (late | in_open_window(spec, messages["x"], before.full_us))


def due(spec: JoinSpec, ticks: Ticks, full_us: int, messages: Messages) -> Bools:
    """Say which messages are due in a batch after which windows with ends up to `full_us` are full, if they were not before."""
    late = messages.has(IS_LATE)
    found: Bools = np.where(late, ticks.late, ticks.early)
    return found | (~late & ~in_open_window(spec, messages["x"], full_us)) if spec.until_full else found


def in_open_window(spec: JoinSpec, x: Ints, full_us: int) -> Bools:
    """Say for which messages the first window that has them ends after a time."""
    found: Bools = grid_of(spec).first_end(x) > full_us
    return found


def full_lists(
    spec: JoinSpec, store: MessageStore, full_us: int, *, everything: bool
) -> tuple[list[bytes], ListedMessages, ListedMessages]:
    """Return the names of the lists that a batch reads, their entries that are due, and those that go on waiting.

    Due are those of full windows, or `everything`.
    """
    none = ListedMessages.empty()
    if everything:
        return (*store.lists(_LISTS), none)
    if not spec.until_full:
        return [], none, none
    names, found = store.lists(_LISTS, _LISTS + block_number(int(_stretch(spec, np.array([full_us]))[0])))
    still = in_open_window(spec, found.x, full_us)
    return names, found.take(np.flatnonzero(~still)), found.take(np.flatnonzero(still))


def open_windows(spec: JoinSpec, store: MessageStore, waiting: ListedMessages, batch_id: int) -> list[pa.Table]:
    """Return the writes of the lists of messages that wait; `batch_id` tells the lists of batches apart."""
    return store.placed_lists(_LISTS, _stretch(spec, grid_of(spec).first_end(waiting.x)), batch_id, waiting)


def _stretch(spec: JoinSpec, end: Ints) -> Ints:
    """Return the number of the list of windows that end at some times; most begin with the end of a window, which is then alone in it."""
    grid = grid_of(spec)
    return (end - grid.offset - grid.size) // max(grid.advance, _LEAST_STRETCH_US)
