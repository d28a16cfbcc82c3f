"""One shard's part of a batch of a join: it stores messages, and pairs those that are due. The pairs are `pairs.py`'s."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import TICK, BatchContext, Inputs, ShardResult
from sessionlake.operators.joins.axis import Session, axis_of
from sessionlake.operators.joins.control import AGAIN, REMOVE
from sessionlake.operators.joins.pairs import Points, pairs
from sessionlake.operators.joins.rows import deleted_rows, late_rows, lone_rows, message_rows, pair_rows
from sessionlake.operators.joins.rules import NEVER, JoinProgress, bounds_after, ticks_in
from sessionlake.operators.joins.spec import MESSAGES, POSITION, SESSION, SIDE, JoinSpec
from sessionlake.operators.joins.unmatched import Unmatched, at_places, due_lists, open_lists, restored, unmatched
from sessionlake.operators.joins.until_full import due, full_lists, in_open_window, open_windows, waits
from sessionlake.operators.shared.sides.columns import packed
from sessionlake.operators.shared.sides.names import LEFT, RIGHT, SIDES, other_of
from sessionlake.operators.shared.windowing.emission import (
    MAX_BATCH,
    MAX_CLOCK,
    UNSENT_EARLY,
    UNSENT_LATE,
    Ticks,
)
from sessionlake.store.lists import restored_list
from sessionlake.store.messages import (
    HEAD,
    IS_LATE,
    ListedMessages,
    Messages,
    MessageStore,
    listed_together,
    together,
)
from sessionlake.stream.control import MAX_FLUSH
from sessionlake.stream.outputs import LATE
from sessionlake.stream.positions import CHUNK, ROW, Numbering
from sessionlake.stream.watermark import NO_WATERMARK

_LETTERS = {LEFT: "l", RIGHT: "r"}
"""The sides' names in stores."""
_LISTS = (b"E", b"L")
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
    close: int
    """The bound of late messages after the batch."""
    full: int
    """Up to which end windows are full after the batch."""

    def reads(self, policy: int) -> bool:
        """Say whether a policy, 0 early and 1 late, fires for messages of earlier batches."""
        fires = (self.ticks.early, self.ticks.late)[policy]
        return fires and self.before.waiting_since(policy) < NEVER


@dataclass(frozen=True)
class Listed:
    """The entries of lists, with the codes of their keys."""

    codes: Ints
    entries: ListedMessages

    def of(self, side: str) -> tuple[Ints, Ints]:
        """Return the codes and the places of the entries of a side."""
        rows = np.flatnonzero(pc.equal(self.entries.sides, side).to_numpy(zero_copy_only=False))
        return self.codes[rows], self.entries.x[rows]


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
    changed: Bools
    """Which messages the store does not have as they are."""

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
        found = [store.lists(_LISTS[policy]) for policy in (0, 1) if times.reads(policy)]
        names, ready, still = full_lists(self.spec, store, times.full, everything=times.reads(0))
        found.append((names, ready))
        # The last one, because its messages are looked at and do not fire.
        found.append(due_lists(self.spec, store, times.close))
        listed = [messages for _, messages in found]
        given = [arrived[side]["key"] for side in SIDES]
        codes, keys = sorted_codes(
            pa.chunked_array([*(c for k in given for c in k.chunks), *(w.keys for w in listed)], pa.string())
        )
        # One coding of all keys, so that codes of both sides and of the lists can be compared; then cut again by source.
        cuts = np.cumsum([*(len(k) for k in given), *(len(w.x) for w in listed)])[:-1]
        parts = np.split(codes, cuts)
        new = {side: self._messages(side, parts[i], arrived[side], times) for i, side in enumerate(SIDES)}
        *waiting, closing = (Listed(*each) for each in zip(parts[2:], listed, strict=True))
        present = self._present(store, keys, new, waiting, closing, times)
        changes = [self._pairs(keys, present, context), deleted_rows(self.spec, inputs.get(REMOVE), context)]
        lists = [store.list_deletes([name for names, _ in found for name in names])]
        if self.spec.outer:
            alone = self._alone(present, closing, times)
            present = {side: _flagged(present[side], alone.get(side)) for side in SIDES}
            for side, of in alone.items():
                for op, rows in (("upsert", of.sent), ("delete", of.taken_back)):
                    changes.append(lone_rows(self.spec, side, keys, of.messages.take(rows), op, context))
            lists += open_lists(self.spec, store, keys, alone, times.batch_id)
        writes = self._writes(store, keys, present, still, lists, times)
        outputs = {
            MESSAGES: pa.concat_tables([message_rows(self.spec, side, keys, present[side].brought) for side in SIDES]),
            **({LATE: late_rows(inputs[LATE], inputs, context)} if LATE in inputs else {}),
        }
        marks = {MAX_CLOCK: times.clock_us, MAX_BATCH: times.batch_id}
        rows = pa.concat_tables(changes)
        deletes = int(pc.sum(pc.equal(rows["op"], "delete")).as_py() or 0)
        stats = {"upserts": len(rows) - deletes, "deletes": deletes, **marks, **_unsent(present)}
        return ShardResult(rows, writes if len(writes) else None, outputs, stats)

    def restored(self, rows: pa.Table, store: MessageStore, part: int) -> pa.Table:
        """Return the writes of a restore's messages, and the lists of messages that wait."""
        rows, number = rows.combine_chunks(), restored_list(part)
        codes, keys = sorted_codes(rows["key"])
        messages: dict[str, Messages] = {}
        kept: dict[str, Bools] = {}
        for side in SIDES:
            here = pc.equal(rows[SIDE], side)
            table, own = rows.filter(here), self.spec.side(side)
            columns = [combined(table[f"{own.name}_{name}"]) for name in own.types]
            at = np.flatnonzero(combined(here).to_numpy(zero_copy_only=False))
            packed = self._packed(side, codes[at], table, table["revision"].to_numpy(), columns)
            order = np.lexsort((packed["position"], packed["x"], packed.codes))
            messages[side] = packed.take(order)
            kept[side] = combined(table["kept"]).to_numpy(zero_copy_only=False)[order]
        tables = []
        if self.spec.outer and len(rows):
            alone = restored(self.spec, messages, kept, int(rows["close_us"][0].as_py()))
            messages = {side: alone[side].messages if side in alone else messages[side] for side in SIDES}
            tables += open_lists(self.spec, store, keys, alone, number)
        for side in SIDES:
            tables.append(store.writes(_LETTERS[side], keys, messages[side].take(np.flatnonzero(kept[side]))))
        x = self.spec.places(rows["time_us"].to_numpy(), rows[POSITION].to_numpy())
        waiting, late = (combined(rows[name]).to_numpy(zero_copy_only=False) for name in ("waits", "is_late"))
        full_us = rows["full_us"][0].as_py() if len(rows) else None
        if full_us is not None:
            waiting &= late | in_open_window(self.spec, x, full_us)
        for policy in (0, 1):
            at = np.flatnonzero(waiting & (late == (policy == 1)))
            sides, named = (combined(rows[name]).take(pa.array(at)) for name in (SIDE, "key"))
            tables += self._lists(store, policy, number, ListedMessages(sides, x[at], named))
        return _by_segment(tables)

    def _lists(self, store: MessageStore, policy: int, batch_id: int, waiting: ListedMessages) -> list[pa.Table]:
        """Return the writes of the lists of messages that wait by a policy, 0 early and 1 late."""
        if policy == 0 and self.spec.until_full:
            return open_windows(self.spec, store, waiting, batch_id)
        return [store.list_writes(_LISTS[policy], batch_id, waiting)]

    def _times(self, inputs: Inputs, context: BatchContext) -> BatchTimes:
        before = JoinProgress.of(context.state)
        told = inputs.get(TICK, pa.table({}))
        greatest = {name: pc.max(told[name]).as_py() for name in told.column_names}
        numbers = {name: number for name, number in greatest.items() if number is not None}
        after = bounds_after(self.spec, before, numbers, context.clock_us)
        return BatchTimes(
            context.batch_id,
            context.clock_us,
            before,
            ticks_in(self.spec, before, context.clock_us, flush=MAX_FLUSH in numbers),
            before.newest(self.spec),
            after.close_us,
            after.full_us,
        )

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
        is_late = combined(table["is_late"]).to_numpy(zero_copy_only=False)
        head["revision"], head["flags"] = revision, np.where(is_late, IS_LATE, 0)
        return Messages(codes, head, packed(self.spec.side(side), columns, len(table)))

    def _present(
        self,
        store: MessageStore,
        keys: pa.Array,
        new: Mapping[str, Messages],
        waiting: Sequence[Listed],
        closing: Listed,
        times: BatchTimes,
    ) -> dict[str, SideMessages]:
        """Return all messages that the batch changes, or that pairs may be made of, and those that may be `closing` without a partner."""
        asked: dict[str, list[tuple[Ints, Ints, Ints]]] = {side: [] for side in SIDES}
        for side in SIDES:
            messages = new[side]
            asked[side].append((messages.codes, messages["x"], messages["x"]))
            # Of an outer join each message must know if it has a partner, due or not.
            now = due(self.spec, times.ticks, times.full, messages) | bool(self.spec.outer)
            self._ask(asked, side, messages.codes[now], messages["x"][now])
            for listed in waiting:
                codes, x = listed.of(side)
                asked[side].append((codes, x, x))
                self._ask(asked, side, codes, x)
            codes, x = closing.of(side)
            asked[side].append((codes, x, x))
            if self.spec.kind == SESSION:  # whose end may have moved on
                self._ask(asked, side, codes, x)
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

    def _marked(self, stored: Messages, new: Messages, times: BatchTimes) -> SideMessages:
        """Put new messages next to stored ones; a message that is stored already is not new."""
        messages = together([stored, new])
        again = np.zeros(len(messages), bool)
        # Sorted by (code, x, position), the stored copy stands before an equal new one, which is dropped.
        again[1:] = (np.diff(messages.codes) == 0) & (np.diff(messages["position"]) == 0)
        messages = messages.take(np.flatnonzero(~again))
        is_new = messages["revision"] == times.batch_id
        undone = is_new | waits(self.spec, times.before, messages)
        now = due(self.spec, times.ticks, times.full, messages)
        return SideMessages(messages, is_new, undone & now, undone & ~now, is_new)

    def _alone(
        self,
        present: Mapping[str, SideMessages],
        closing: Listed,
        times: BatchTimes,
    ) -> dict[str, Unmatched]:
        """Return the messages of sides that are sent alone, and which of them the batch sends or takes back."""
        messages = {side: present[side].messages for side in SIDES}
        asked = {side: at_places(messages[side], *closing.of(side)) for side in SIDES}
        new = {side: present[side].new for side in SIDES}
        before = times.before.at.close_us
        return unmatched(self.spec, messages, new, asked, before=before, close=times.close)

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
        still: ListedMessages,
        lists: Sequence[pa.Table],
        times: BatchTimes,
    ) -> pa.Table:
        """Return the writes of the blocks that have a new or changed message, and of the lists; `lists` has some already.

        `still` are the entries of lists of full windows that were read, and go on waiting.
        """
        tables = list(lists)
        waiting: list[list[ListedMessages]] = [[still], []]
        for side in SIDES:
            of, messages = present[side], present[side].messages
            block = messages["x"] // store.block
            # A block begins at each change of the key or of the block's number.
            starts = np.flatnonzero((np.diff(messages.codes, prepend=-1) != 0) | (np.diff(block, prepend=0) != 0))
            if len(starts):
                touched = np.repeat(np.logical_or.reduceat(of.changed, starts), np.diff(starts, append=len(block)))
                tables.append(store.writes(_LETTERS[side], keys, messages.take(np.flatnonzero(touched))))
            for policy in (0, 1):
                rows = np.flatnonzero(of.new & of.waits & (messages.has(IS_LATE) == (policy == 1)))
                waiting[policy].append(_waiting(side, keys, messages, rows))
        for policy, parts in enumerate(waiting):
            tables += self._lists(store, policy, times.batch_id, listed_together(parts))
        return _by_segment(tables)


def _waiting(side: str, keys: pa.Array, messages: Messages, rows: Ints) -> ListedMessages:
    named = keys.take(pa.array(messages.codes[rows]))
    return ListedMessages(pa.array([side] * len(rows), pa.string()), messages["x"][rows], named)


def _by_segment(tables: Sequence[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables)
    # Stores take writes ascending by segment; a stable sort keeps the order within one.
    return table.take(pa.array(np.argsort(table["segment"].to_numpy(), kind="stable")))


def _flagged(of: SideMessages, alone: Unmatched | None) -> SideMessages:
    """Return the messages with the flags that they have after the batch."""
    return of if alone is None else replace(of, messages=alone.messages, changed=of.new | alone.changed)


def _unsent(present: Mapping[str, SideMessages]) -> dict[str, int]:
    """Return how many of the batch's messages wait, by policy."""
    late = [present[side].messages.has(IS_LATE)[present[side].new & present[side].waits] for side in SIDES]
    waiting = np.concatenate(late)
    return {UNSENT_EARLY: int((~waiting).sum()), UNSENT_LATE: int(waiting.sum())}
