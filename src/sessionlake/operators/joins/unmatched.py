"""The messages of outer joins that have no partner: a batch sends some alone, and deletes such rows if a partner comes after all.

For example, an order without a shipment is sent when each shipment that could still belong to it would be late. A flag in the store
says whether a message has had a partner, so that it does not depend on how long partners are kept. A message without one was sent if
its closing place is passed; of a session, whose end may move on, a second flag says so. Messages that may still get a partner are named in lists, by the place that the close must pass
(docs/rules.md, rules 290 to 293).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.columnar.axis import Axis
from sessionlake.operators.joins.axis import JoinAxis, axis_of
from sessionlake.operators.joins.pairs import Points, stretches
from sessionlake.operators.joins.spec import SESSION, JoinSpec
from sessionlake.operators.shared.sides.names import SIDES, other_of
from sessionlake.operators.shared.windowing.policies import BATCH
from sessionlake.store.blocks import block_number
from sessionlake.store.messages import MATCHED, MAYBE_SENT, SENT, ListedMessages, Messages, MessageStore

_LISTS = b"C"
"""The first byte of the names of lists."""
_BUCKETS, _LEAST_BUCKET_US = 16, 1_000_000


@dataclass(frozen=True)
class Unmatched:
    """The messages of one side with their flags after a batch, and the rows that are about messages without a partner; all rows ascend."""

    messages: Messages
    changed: Bools
    """Which messages have other flags than before."""
    sent: Ints
    """The rows that go out alone."""
    taken_back: Ints
    """The rows that had gone out alone, and now have a partner."""
    open: Ints
    """The rows without a partner that may still get one."""
    closing: Ints
    """Of each row of `open` the place that the close must pass for no partner to come any more."""


def unmatched(
    spec: JoinSpec,
    messages: Mapping[str, Messages],
    new: Mapping[str, Bools],
    asked: Mapping[str, Bools],
    *,
    before: int,
    close: int,
) -> dict[str, Unmatched]:
    """Return the messages without a partner for each side that `spec.outer` names.

    `messages` are by (code, x): the new ones, all that may be partners of new ones, and the stored ones that are `asked`, because their
    time may have come. For example, with `unmatched = "close"` an order that is asked is sent if its closing place lies before `close`,
    the bound of late messages after the batch; `before` is that of the batch before.
    """
    axis = axis_of(spec)
    points = {side: Points(messages[side].codes, messages[side]["x"], new[side]) for side in SIDES}
    found = {}
    for side, (low, high) in zip(SIDES, stretches(axis, *points.values()), strict=True):
        if side not in spec.outer:
            continue
        own, others = messages[side], points[other_of(side)]
        first, end = Axis(others.codes, others.x).between(own.codes, low, high)
        gained = (end > first) & ~own.has(MATCHED)
        alone = (end <= first) & ~own.has(MATCHED)
        closing = axis.closed_after(side, own["x"], high)
        moves = spec.kind == SESSION and spec.unmatched != BATCH
        if spec.unmatched == BATCH:
            sent, waits = alone & new[side], np.zeros(len(own), bool)
            was_sent = ~new[side]
        else:
            looked_at = alone & (new[side] | asked[side]) & ~own.has(SENT)
            sent, waits = looked_at & (closing < close), looked_at & (closing >= close)
            was_sent = own.has(SENT | MAYBE_SENT) if moves else ~new[side] & (closing < before)
        flags = np.where(gained, MATCHED, 0) | np.where(sent & moves, SENT, 0)
        head = own.head.copy()
        head["flags"] |= flags.astype(np.uint8)
        found[side] = Unmatched(
            Messages(own.codes, head, own.columns),
            flags > 0,
            np.flatnonzero(sent),
            np.flatnonzero(gained & was_sent),
            np.flatnonzero(waits),
            closing[waits],
        )
    return found


def restored(
    spec: JoinSpec, messages: Mapping[str, Messages], kept: Mapping[str, Bools], close: int
) -> dict[str, Unmatched]:
    """Return the messages without a partner of a store that is restored; rows that are not `kept` are there as partners alone."""
    found = unmatched(spec, messages, kept, kept, before=close, close=close)
    if spec.kind != SESSION:
        return found
    axis = axis_of(spec)
    for side, of in found.items():
        # A session may have been shorter when its messages were sent. To delete a row that was never sent does no harm.
        x = of.messages["x"]
        maybe = ~of.messages.has(MATCHED) & (axis.closed_after(side, x, axis.end_alone(side, x)) < close)
        of.messages.head["flags"] |= np.where(maybe, MAYBE_SENT, 0).astype(np.uint8)
    return found


def at_places(messages: Messages, codes: Ints, x: Ints) -> Bools:
    """Say which messages lie at one of some places of their keys' axes."""
    order = np.lexsort((x, codes))
    first, end = Axis(codes[order], x[order]).between(messages.codes, messages["x"], messages["x"])
    found: Bools = end > first
    return found


def due_lists(spec: JoinSpec, store: MessageStore, close: int) -> tuple[list[bytes], ListedMessages]:
    """Return the names and the entries of all lists that may have messages whose closing place lies before a place; none if nothing is listed."""
    if not spec.lists_open:
        return [], ListedMessages.empty()
    return store.lists(_LISTS, _LISTS + block_number((close - 1) // _bucket(axis_of(spec))))


def open_lists(
    spec: JoinSpec, store: MessageStore, keys: pa.Array, found: Mapping[str, Unmatched], batch_id: int
) -> list[pa.Table]:
    """Return the writes of the lists of the messages that may still get a partner; `batch_id` tells the lists of batches apart."""
    none = np.zeros(0, np.int64)
    bucket = np.concatenate([none, *(of.closing for of in found.values())]) // _bucket(axis_of(spec))
    side = np.repeat([SIDES.index(name) for name in found], [len(of.open) for of in found.values()])
    codes = np.concatenate([none, *(of.messages.codes[of.open] for of in found.values())])
    x = np.concatenate([none, *(of.messages["x"][of.open] for of in found.values())])
    entries = ListedMessages(pa.array(SIDES).take(pa.array(side)), x, keys.take(pa.array(codes)))
    return store.placed_lists(_LISTS, bucket, batch_id, entries)


def _bucket(axis: JoinAxis) -> int:
    """Return the length of the stretch of closing places that a list is of."""
    return max(axis.patience // _BUCKETS, _LEAST_BUCKET_US)
