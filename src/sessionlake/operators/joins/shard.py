"""One shard's part of a batch of a join: messages stored, pairs made of those that are due. The pairs are `pairs.py`'s."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined, sorted_codes
from sessionlake.engine.operator import RESTORE, TICK, BatchContext, Inputs, ShardResult
from sessionlake.operators.joins.control import AGAIN, REMOVE, pack, unpack
from sessionlake.operators.joins.pairs import Points, pairs
from sessionlake.operators.joins.rules import NEVER, JoinProgress
from sessionlake.operators.joins.spec import (
    LEFT,
    MESSAGES,
    POSITION,
    RIGHT,
    SIDE,
    SIDES,
    JoinSpec,
    Session,
    join_schema,
    message_schema,
    other_of,
)
from sessionlake.operators.windows.emission import MAX_BATCH, MAX_CLOCK, UNSENT_EARLY, UNSENT_LATE, Ticks, ticks_of
from sessionlake.store.messages import HEAD, Messages, MessageStore, Waiting, together
from sessionlake.stream.control import MAX_FLUSH
from sessionlake.stream.outputs import LATE
from sessionlake.stream.positions import CHUNK, ROW, Numbering
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse.schemas import TIME

_LETTERS = {LEFT: "l", RIGHT: "r"}
"""How stores call the sides."""
_LISTS = ("E", "L")
"""The stores' letters of the lists of messages that wait by the policies early and late."""


@dataclass(frozen=True)
class Moment:
    """What a batch is, besides its rows: how far the pipeline was, and which policies fire."""

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
class Present:
    """The messages of one side that a batch has to do with: those that are stored, and its own. By (code, x, position)."""

    messages: Messages
    new: Bools
    """Which this batch brings."""
    fires: Bools
    """Which pairs are made of in this batch."""
    waits: Bools
    """Which wait for a later one."""


@dataclass(frozen=True)
class JoinShard:
    """Computes shards of one pipeline; a function of its arguments."""

    spec: JoinSpec

    def computed(self, inputs: Inputs, store: MessageStore, context: BatchContext) -> ShardResult:
        """Return what becomes of a shard: its messages with the batch's, and the pairs of those that fire."""
        moment = self._moment(inputs, context)
        arrived = {side: self._arrived(inputs, side, context) for side in SIDES}
        found = {policy: store.lists(_LISTS[policy]) for policy in (0, 1) if self._listed(moment, policy)}
        listed = [waiting for _, waiting in found.values()]
        given = [arrived[side]["key"] for side in SIDES]
        codes, keys = sorted_codes(
            pa.chunked_array([*(c for k in given for c in k.chunks), *(w.keys for w in listed)], pa.string())
        )
        cuts = np.cumsum([*(len(k) for k in given), *(len(w.x) for w in listed)])[:-1]
        parts = np.split(codes, cuts)
        new = {side: self._messages(side, parts[i], arrived[side], moment) for i, side in enumerate(SIDES)}
        present = self._present(store, keys, new, list(zip(parts[2:], listed, strict=True)), moment)
        sent = self._pairs(keys, present, moment)
        removed = _deleted(sent.schema, inputs.get(REMOVE), moment)
        writes = self._writes(store, keys, present, [name for names, _ in found.values() for name in names], moment)
        outputs = {
            MESSAGES: pa.concat_tables([self._message_rows(side, keys, present[side]) for side in SIDES]),
            **({LATE: self._late_rows(inputs[LATE], inputs, context)} if LATE in inputs else {}),
        }
        marks = {MAX_CLOCK: moment.clock_us, MAX_BATCH: moment.batch_id}
        stats = {"upserts": len(sent), "deletes": len(removed), **marks, **_unsent(present)}
        return ShardResult(pa.concat_tables([sent, removed]), writes if len(writes) else None, outputs, stats)

    def restored(self, inputs: Inputs, store: MessageStore) -> pa.Table:
        """Return the writes of handed-in messages, and the lists of those that wait."""
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
            tables.append(store.list_writes(letter, 0, Waiting(sides, x[at], named)))
        return _by_segment(tables)

    def _moment(self, inputs: Inputs, context: BatchContext) -> Moment:
        before = JoinProgress.of(context.state)
        told = inputs.get(TICK, pa.table({}))
        flush = MAX_FLUSH in told.column_names and pc.max(told[MAX_FLUSH]).as_py() is not None
        return Moment(
            context.batch_id,
            context.clock_us,
            before,
            ticks_of(self.spec.emit, before.at, context.clock_us, flush=flush),
            before.newest(self.spec),
        )

    @staticmethod
    def _listed(moment: Moment, policy: int) -> bool:
        return moment.due(policy) and moment.before.waiting_since(policy) < NEVER

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

    def _messages(self, side: str, codes: Ints, table: pa.Table, moment: Moment) -> Messages:
        columns = [combined(table[f"column_{i}"]) for i in range(len(self.spec.side(side).columns))]
        return self._packed(side, codes, table, np.full(len(table), moment.batch_id), columns)

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
        listed: Sequence[tuple[Ints, Waiting]],
        moment: Moment,
    ) -> dict[str, Present]:
        """Return all messages that the batch changes, or that pairs may be made of."""
        asked: dict[str, list[tuple[Ints, Ints, Ints]]] = {side: [] for side in SIDES}
        for side in SIDES:
            messages = new[side]
            asked[side].append((messages.codes, messages["x"], messages["x"]))
            due = np.where(messages["late"] > 0, moment.ticks.late, moment.ticks.early)
            self._ask(asked, side, messages.codes[due], messages["x"][due])
            for codes, waiting in listed:
                rows = np.flatnonzero(pc.equal(waiting.sides, side).to_numpy(zero_copy_only=False))
                asked[side].append((codes[rows], waiting.x[rows], waiting.x[rows]))
                self._ask(asked, side, codes[rows], waiting.x[rows])
        found, newest = {}, max(moment.newest, *(int(new[side]["x"].max(initial=NO_WATERMARK)) for side in SIDES))
        for side in SIDES:
            codes, low, high = (np.concatenate(part) for part in zip(*asked[side], strict=True))
            horizon = moment.before.horizon(side)
            stored = store.around(_LETTERS[side], keys, codes, np.maximum(low, horizon), np.minimum(high, newest))
            stored = stored.take(np.flatnonzero(stored["x"] >= horizon))
            found[side] = self._marked(stored, new[side], moment)
        return found

    def _ask(self, asked: Mapping[str, list[tuple[Ints, Ints, Ints]]], side: str, codes: Ints, x: Ints) -> None:
        """Ask for the partners of messages; in a session for what is between them, too."""
        low, high = self.spec.axis.partners(side, x)
        asked[other_of(side)].append((codes, low, high))
        if isinstance(self.spec.axis, Session):
            asked[side].append((codes, low, high))

    @staticmethod
    def _marked(stored: Messages, new: Messages, moment: Moment) -> Present:
        """Put new messages beside stored ones; one that is stored already is not new."""
        messages = together([stored, new])
        again = np.zeros(len(messages), bool)
        again[1:] = (np.diff(messages.codes) == 0) & (np.diff(messages["position"]) == 0)
        messages = messages.take(np.flatnonzero(~again))
        revision, late = messages["revision"], messages["late"] > 0
        is_new = revision == moment.batch_id
        undone = is_new | (revision > np.where(late, moment.before.waiting_since(1), moment.before.waiting_since(0)))
        due = np.where(late, moment.ticks.late, moment.ticks.early)
        return Present(messages, is_new, undone & due, undone & ~due)

    def _pairs(self, keys: pa.Array, present: Mapping[str, Present], moment: Moment) -> pa.Table:
        """Return the rows of the pairs that go out."""
        taken = {side: np.flatnonzero(~present[side].waits) for side in SIDES}
        messages = {side: present[side].messages.take(rows) for side, rows in taken.items()}
        left, right = (
            Points(messages[side].codes, messages[side]["x"], present[side].fires[taken[side]]) for side in SIDES
        )
        columns = {side: unpack(self.spec.side(side), messages[side].columns) for side in SIDES}
        schema = join_schema(self.spec, marks=False)
        tables = [schema.empty_table()]
        for of_left, of_right in pairs(self.spec.axis, left, right):
            n, rows = len(of_left), {LEFT: of_left, RIGHT: of_right}
            found: dict[str, pa.Array] = {
                "op": pa.repeat("upsert", n),
                "join_key": keys.take(pa.array(left.codes[of_left])),
                "revision": pa.repeat(moment.batch_id, n),
                "emitted_at": pa.repeat(moment.clock_us, n).cast(TIME),
            }
            for side in SIDES:
                own, at = self.spec.side(side), pa.array(rows[side])
                found[f"{side}_time"] = pa.array(messages[side]["time"][rows[side]]).cast(TIME)
                found[f"{side}_position"] = pa.array(messages[side]["position"][rows[side]])
                values = zip(own.columns, columns[side], strict=True)
                found |= {f"{own.name}_{name}": column.take(at) for name, column in values}
            tables.append(pa.Table.from_arrays([found[name] for name in schema.names], schema=schema))
        return pa.concat_tables(tables)

    def _writes(
        self,
        store: MessageStore,
        keys: pa.Array,
        present: Mapping[str, Present],
        ended: Sequence[bytes],
        moment: Moment,
    ) -> pa.Table:
        """Return the writes of the blocks that have a new message, and of the lists."""
        tables = [store.list_deletes(ended)]
        waiting: list[list[Waiting]] = [[], []]
        for side in SIDES:
            of, messages = present[side], present[side].messages
            block = messages["x"] // store.block
            starts = np.flatnonzero((np.diff(messages.codes, prepend=-1) != 0) | (np.diff(block, prepend=0) != 0))
            if len(starts):
                touched = np.repeat(np.logical_or.reduceat(of.new, starts), np.diff(starts, append=len(block)))
                tables.append(store.writes(_LETTERS[side], keys, messages.take(np.flatnonzero(touched))))
            for policy in (0, 1):
                rows = np.flatnonzero(of.new & of.waits & (messages["late"] == policy))
                waiting[policy].append(_waiting(side, keys, messages, rows))
        for policy, parts in enumerate(waiting):
            sides, named = (pa.concat_arrays([getattr(part, name) for part in parts]) for name in ("sides", "keys"))
            both = Waiting(sides, np.concatenate([part.x for part in parts]), named)
            tables.append(store.list_writes(_LISTS[policy], moment.batch_id, both))
        return _by_segment(tables)

    def _message_rows(self, side: str, keys: pa.Array, present: Present) -> pa.Table:
        """Return the rows of join_messages of a side's new messages."""
        messages = present.messages.take(np.flatnonzero(present.new))
        own, n, schema = self.spec.side(side), len(messages), message_schema(self.spec, marks=False)
        columns = zip(own.columns, unpack(own, messages.columns), strict=True)
        found: dict[str, pa.Array] = {
            SIDE: pa.repeat(side, n),
            "join_key": keys.take(pa.array(messages.codes)),
            "time": pa.array(messages["time"]).cast(TIME),
            POSITION: pa.array(messages["position"]),
            **{f"{own.name}_{name}": column for name, column in columns},
            "revision": pa.array(messages["revision"]),
            "is_late": pa.array(messages["late"] > 0),
        }
        arrays = [found.get(f.name, pa.nulls(n, f.type)) for f in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    @staticmethod
    def _late_rows(late: pa.Table, inputs: Inputs, context: BatchContext) -> pa.Table:
        """Return the rows of the table of late events, with their positions."""
        position = np.empty(len(late), np.int64)
        for side in SIDES:
            rows = pc.equal(combined(late[SIDE]), side).to_numpy(zero_copy_only=False)
            if rows.any():
                chunk, row = (late[name].to_numpy()[rows] for name in (CHUNK, ROW))
                position[rows] = Numbering.of(inputs, context.state, side).positions(chunk, row)
        return late.drop_columns([CHUNK, ROW]).append_column(POSITION, pa.array(position))


def _waiting(side: str, keys: pa.Array, messages: Messages, rows: Ints) -> Waiting:
    named = keys.take(pa.array(messages.codes[rows]))
    return Waiting(pa.array([side] * len(rows), pa.string()), messages["x"][rows], named)


def _by_segment(tables: Sequence[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables)
    return table.take(pa.array(np.argsort(table["segment"].to_numpy(), kind="stable")))


def _unsent(present: Mapping[str, Present]) -> dict[str, int]:
    """Return how many of the batch's messages wait, by policy."""
    late = [present[side].messages["late"][present[side].new & present[side].waits] for side in SIDES]
    waiting = np.concatenate(late)
    return {UNSENT_EARLY: int((waiting == 0).sum()), UNSENT_LATE: int((waiting == 1).sum())}


def _deleted(schema: pa.Schema, removals: pa.Table | None, moment: Moment) -> pa.Table:
    """Return the rows that delete the pairs which tombstones name, each once; for its time such a row has the pair's."""
    if removals is None:
        return schema.empty_table()
    names = {"key": "join_key", "left_position": "left_position", "right_position": "right_position"}
    grouped = removals.group_by(list(names)).aggregate([("time_us", "max")])
    pairs_of = grouped.select(list(names)).rename_columns(list(names.values()))
    n = len(pairs_of)
    found = {
        "op": pa.repeat("delete", n),
        **{name: combined(pairs_of[name]) for name in pairs_of.column_names},
        "left_time": combined(grouped["time_us_max"]).cast(TIME),
        "revision": pa.repeat(moment.batch_id, n),
        "emitted_at": pa.repeat(moment.clock_us, n).cast(TIME),
    }
    return pa.Table.from_arrays([found.get(f.name, pa.nulls(n, f.type)) for f in schema], schema=schema)
