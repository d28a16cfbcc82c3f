"""One shard's part of a batch of a join: it stores messages, and pairs those that are due. The pairs are `pairs.py`'s."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined, sorted_codes
from sessionlake.engine.operator import RESTORE, TICK, BatchContext, Inputs, ShardResult
from sessionlake.operators.joins.axis import Session, axis_of
from sessionlake.operators.joins.control import AGAIN, REMOVE, pack
from sessionlake.operators.joins.pairs import Points, pairs
from sessionlake.operators.joins.rows import deleted_rows, late_rows, message_rows, pair_rows
from sessionlake.operators.joins.rules import NEVER, JoinProgress
from sessionlake.operators.joins.spec import LEFT, MESSAGES, POSITION, RIGHT, SIDE, SIDES, JoinSpec, other_of
from sessionlake.operators.shared.windowing.emission import (
    MAX_BATCH,
    MAX_CLOCK,
    UNSENT_EARLY,
    UNSENT_LATE,
    Ticks,
    ticks_of,
)
from sessionlake.store.messages import HEAD, ListedMessages, Messages, MessageStore, together
from sessionlake.stream.control import MAX_FLUSH
from sessionlake.stream.outputs import LATE
from sessionlake.stream.positions import CHUNK, ROW, Numbering
from sessionlake.stream.watermark import NO_WATERMARK

_LETTERS = {LEFT: "l", RIGHT: "r"}
"""The sides' names in stores."""
_LISTS = ("E", "L")
"""The stores' letters of the lists of messages that wait by the policies early and late."""


@dataclass(frozen=True)
class BatchTimes:
    """The part of a batch that is the same for all rows: its number, its clock, the progress before it, and the policies that fire."""

    batch_id: int
    clock_us: int
    before: JoinProgress
    ticks: Ticks
    newest: int
    """No stored message of either side lies behind it."""

    def due(self, policy: int) -> bool:
        """Say whether a policy, 0 early and 1 late, fires."""
        return (self.ticks.early, self.ticks.late)[policy]


@dataclass(frozen=True)
class SideMessages:
    """The messages of one side that a batch needs, stored ones and its own, ordered by (code, x, position)."""

    messages: Messages
    new: Bools
    """Which messages this batch brings."""
    fires: Bools
    """Which messages are paired in this batch."""
    waits: Bools
    """Which messages wait for a later batch."""

    @property
    def brought(self) -> Messages:
        """The messages that this batch brings."""
        return self.messages.take(np.flatnonzero(self.new))


@dataclass(frozen=True)
class JoinShard:
    """Computes shards of one pipeline; a function of its arguments."""

    spec: JoinSpec

    def computed(self, inputs: Inputs, store: MessageStore, context: BatchContext) -> ShardResult:
        """Return the shard's result: its messages with the batch's, and the pairs of messages that fire."""
        times = self._times(inputs, context)
        arrived = {side: self._arrived(inputs, side, context) for side in SIDES}
        found = {policy: store.lists(_LISTS[policy]) for policy in (0, 1) if self._listed(times, policy)}
        listed = [waiting for _, waiting in found.values()]
        given = [arrived[side]["key"] for side in SIDES]
        codes, keys = sorted_codes(
            pa.chunked_array([*(c for k in given for c in k.chunks), *(w.keys for w in listed)], pa.string())
        )
        # One coding of all keys, so that codes of both sides and of the lists can be compared; then cut again by source.
        cuts = np.cumsum([*(len(k) for k in given), *(len(w.x) for w in listed)])[:-1]
        parts = np.split(codes, cuts)
        new = {side: self._messages(side, parts[i], arrived[side], times) for i, side in enumerate(SIDES)}
        present = self._present(store, keys, new, list(zip(parts[2:], listed, strict=True)), times)
        sent = self._pairs(keys, present, context)
        removed = deleted_rows(self.spec, inputs.get(REMOVE), context)
        writes = self._writes(store, keys, present, [name for names, _ in found.values() for name in names], times)
        outputs = {
            MESSAGES: pa.concat_tables([message_rows(self.spec, side, keys, present[side].brought) for side in SIDES]),
            **({LATE: late_rows(inputs[LATE], inputs, context)} if LATE in inputs else {}),
        }
        marks = {MAX_CLOCK: times.clock_us, MAX_BATCH: times.batch_id}
        stats = {"upserts": len(sent), "deletes": len(removed), **marks, **_unsent(present)}
        return ShardResult(pa.concat_tables([sent, removed]), writes if len(writes) else None, outputs, stats)

    def restored(self, inputs: Inputs, store: MessageStore) -> pa.Table:
        """Return the writes of a restore's messages, and the lists of messages that wait."""
        rows = inputs[RESTORE].combine_chunks()
        tables = []
        for side in SIDES:
            table = rows.filter(pc.equal(rows[SIDE], side))
            own = self.spec.side(side)
            codes, keys = sorted_codes(table["key"])
            columns = [combined(table[f"{own.name}_{name}"]) for name in own.columns]
            messages = self._packed(side, codes, table, table["revision"].to_numpy(), columns)
            tables.append(store.writes(_LETTERS[side], keys, together([messages])))
        x = self.spec.places(rows["time_us"].to_numpy(), rows[POSITION].to_numpy())
        waits, late = (combined(rows[name]).to_numpy(zero_copy_only=False) for name in ("waits", "is_late"))
        for policy, letter in enumerate(_LISTS):
            at = np.flatnonzero(waits & (late == (policy == 1)))
            sides, named = (combined(rows[name]).take(pa.array(at)) for name in (SIDE, "key"))
            tables.append(store.list_writes(letter, 0, ListedMessages(sides, x[at], named)))
        return _by_segment(tables)

    def _times(self, inputs: Inputs, context: BatchContext) -> BatchTimes:
        before = JoinProgress.of(context.state)
        told = inputs.get(TICK, pa.table({}))
        flush = MAX_FLUSH in told.column_names and pc.max(told[MAX_FLUSH]).as_py() is not None
        return BatchTimes(
            context.batch_id,
            context.clock_us,
            before,
            ticks_of(self.spec.emit, before.at, context.clock_us, flush=flush),
            before.newest(self.spec),
        )

    @staticmethod
    def _listed(times: BatchTimes, policy: int) -> bool:
        return times.due(policy) and times.before.waiting_since(policy) < NEVER

    def _arrived(self, inputs: Inputs, side: str, context: BatchContext) -> pa.Table:
        """Return a side's messages of the batch: key, time_us, position, is_late, and its columns as column_<i>."""
        own = self.spec.side(side)
        schema = pa.schema(
            [
                ("key", pa.string()),
                ("time_us", pa.int64()),
                (POSITION, pa.int64()),
                ("is_late", pa.bool_()),
                *((f"column_{i}", type_) for i, type_ in enumerate(own.types.values())),
            ]
        )
        tables = [schema.empty_table()]
        if side in inputs:
            table = inputs[side]
            numbering = Numbering.of(inputs, context.state, side)
            position = numbering.positions(table[CHUNK].to_numpy(), table[ROW].to_numpy())
            tables.append(table.append_column(POSITION, pa.array(position)).select(schema.names).cast(schema))
        if AGAIN[side] in inputs:
            tables.append(inputs[AGAIN[side]].select(schema.names).cast(schema))
        return pa.concat_tables(tables)

    def _messages(self, side: str, codes: Ints, table: pa.Table, times: BatchTimes) -> Messages:
        columns = [combined(table[f"column_{i}"]) for i in range(len(self.spec.side(side).columns))]
        return self._packed(side, codes, table, np.full(len(table), times.batch_id), columns)

    def _packed(self, side: str, codes: Ints, table: pa.Table, revision: Ints, columns: list[pa.Array]) -> Messages:
        head = np.zeros(len(table), HEAD)
        head["time"], head["position"] = table["time_us"].to_numpy(), table[POSITION].to_numpy()
        head["x"] = self.spec.places(head["time"], head["position"])
        head["revision"], head["late"] = revision, combined(table["is_late"]).to_numpy(zero_copy_only=False)
        return Messages(codes, head, pack(self.spec.side(side), columns, len(table)))

    def _present(
        self,
        store: MessageStore,
        keys: pa.Array,
        new: Mapping[str, Messages],
        listed: Sequence[tuple[Ints, ListedMessages]],
        times: BatchTimes,
    ) -> dict[str, SideMessages]:
        """Return all messages that the batch changes, or that pairs may be made of."""
        asked: dict[str, list[tuple[Ints, Ints, Ints]]] = {side: [] for side in SIDES}
        for side in SIDES:
            messages = new[side]
            asked[side].append((messages.codes, messages["x"], messages["x"]))
            due = np.where(messages["late"] > 0, times.ticks.late, times.ticks.early)
            self._ask(asked, side, messages.codes[due], messages["x"][due])
            for codes, waiting in listed:
                rows = np.flatnonzero(pc.equal(waiting.sides, side).to_numpy(zero_copy_only=False))
                asked[side].append((codes[rows], waiting.x[rows], waiting.x[rows]))
                self._ask(asked, side, codes[rows], waiting.x[rows])
        # Reads end at the newest message: partners further away are not there yet.
        found, newest = {}, max(times.newest, *(int(new[side]["x"].max(initial=NO_WATERMARK)) for side in SIDES))
        for side in SIDES:
            codes, low, high = (np.concatenate(part) for part in zip(*asked[side], strict=True))
            horizon = times.before.horizon(side)
            stored = store.around(_LETTERS[side], keys, codes, np.maximum(low, horizon), np.minimum(high, newest))
            stored = stored.take(np.flatnonzero(stored["x"] >= horizon))
            found[side] = self._marked(stored, new[side], times)
        return found

    def _ask(self, asked: Mapping[str, list[tuple[Ints, Ints, Ints]]], side: str, codes: Ints, x: Ints) -> None:
        """Ask for the partners of messages; for sessions also for the messages between them."""
        axis = axis_of(self.spec)
        low, high = axis.partners(side, x)
        asked[other_of(side)].append((codes, low, high))
        if isinstance(axis, Session):
            asked[side].append((codes, low, high))

    @staticmethod
    def _marked(stored: Messages, new: Messages, times: BatchTimes) -> SideMessages:
        """Put new messages next to stored ones; a message that is stored already is not new."""
        messages = together([stored, new])
        again = np.zeros(len(messages), bool)
        # Sorted by (code, x, position), the stored copy stands before an equal new one, which is dropped.
        again[1:] = (np.diff(messages.codes) == 0) & (np.diff(messages["position"]) == 0)
        messages = messages.take(np.flatnonzero(~again))
        revision, late = messages["revision"], messages["late"] > 0
        is_new = revision == times.batch_id
        # A stored message is unsent if it came after the batch since which its list has waited.
        undone = is_new | (revision > np.where(late, times.before.waiting_since(1), times.before.waiting_since(0)))
        due = np.where(late, times.ticks.late, times.ticks.early)
        return SideMessages(messages, is_new, undone & due, undone & ~due)

    def _pairs(self, keys: pa.Array, present: Mapping[str, SideMessages], context: BatchContext) -> pa.Table:
        """Return the rows of the pairs that go out."""
        taken = {side: np.flatnonzero(~present[side].waits) for side in SIDES}
        messages = {side: present[side].messages.take(rows) for side, rows in taken.items()}
        left, right = (
            Points(messages[side].codes, messages[side]["x"], present[side].fires[taken[side]]) for side in SIDES
        )
        return pair_rows(self.spec, keys, messages, pairs(axis_of(self.spec), left, right), context)

    def _writes(
        self,
        store: MessageStore,
        keys: pa.Array,
        present: Mapping[str, SideMessages],
        ended: Sequence[bytes],
        times: BatchTimes,
    ) -> pa.Table:
        """Return the writes of the blocks that have a new message, and of the lists."""
        tables = [store.list_deletes(ended)]
        waiting: list[list[ListedMessages]] = [[], []]
        for side in SIDES:
            of, messages = present[side], present[side].messages
            block = messages["x"] // store.block
            # A block begins at each change of the key or of the block's number.
            starts = np.flatnonzero((np.diff(messages.codes, prepend=-1) != 0) | (np.diff(block, prepend=0) != 0))
            if len(starts):
                touched = np.repeat(np.logical_or.reduceat(of.new, starts), np.diff(starts, append=len(block)))
                tables.append(store.writes(_LETTERS[side], keys, messages.take(np.flatnonzero(touched))))
            for policy in (0, 1):
                rows = np.flatnonzero(of.new & of.waits & (messages["late"] == policy))
                waiting[policy].append(_waiting(side, keys, messages, rows))
        for policy, parts in enumerate(waiting):
            sides, named = (pa.concat_arrays([getattr(part, name) for part in parts]) for name in ("sides", "keys"))
            both = ListedMessages(sides, np.concatenate([part.x for part in parts]), named)
            tables.append(store.list_writes(_LISTS[policy], times.batch_id, both))
        return _by_segment(tables)


def _waiting(side: str, keys: pa.Array, messages: Messages, rows: Ints) -> ListedMessages:
    named = keys.take(pa.array(messages.codes[rows]))
    return ListedMessages(pa.array([side] * len(rows), pa.string()), messages["x"][rows], named)


def _by_segment(tables: Sequence[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables)
    # Stores take writes ascending by segment; a stable sort keeps the order within one.
    return table.take(pa.array(np.argsort(table["segment"].to_numpy(), kind="stable")))


def _unsent(present: Mapping[str, SideMessages]) -> dict[str, int]:
    """Return how many of the batch's messages wait, by policy."""
    late = [present[side].messages["late"][present[side].new & present[side].waits] for side in SIDES]
    waiting = np.concatenate(late)
    return {UNSENT_EARLY: int((waiting == 0).sum()), UNSENT_LATE: int((waiting == 1).sum())}
