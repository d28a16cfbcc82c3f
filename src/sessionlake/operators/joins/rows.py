"""The rows of a join's tables that a shard puts out: of pairs, of messages, of late messages."""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.engine.operator import BatchContext, Inputs
from sessionlake.operators.joins.spec import POSITION, SIDE, JoinSpec, join_schema, message_schema
from sessionlake.operators.shared.sides.columns import unpacked
from sessionlake.operators.shared.sides.names import LEFT, RIGHT, SIDES, other_of
from sessionlake.store.messages import IS_LATE, Messages
from sessionlake.stream.positions import CHUNK, ROW, Numbering
from sessionlake.warehouse.schemas import TIME


def pair_rows(
    spec: JoinSpec,
    keys: pa.Array,
    messages: Mapping[str, Messages],
    found: Iterable[tuple[Ints, Ints]],
    context: BatchContext,
) -> pa.Table:
    """Return the rows of join_changelog of pairs, given by their messages' places among those of each side.

    `messages` are by side; their codes are places among the keys.
    """
    columns = {side: unpacked(spec.side(side), messages[side].columns) for side in SIDES}
    schema = join_schema(spec, marks=False)
    tables = [schema.empty_table()]
    for of_left, of_right in found:
        n = len(of_left)
        values: dict[str, pa.Array] = {
            "op": pa.repeat("upsert", n),
            "join_key": keys.take(pa.array(messages[LEFT].codes[of_left])),
            "revision": pa.repeat(context.batch_id, n),
            "emitted_at": pa.repeat(context.clock_us, n).cast(TIME),
        }
        for side, rows in ((LEFT, of_left), (RIGHT, of_right)):
            own = spec.side(side)
            values[f"{side}_time"] = pa.array(messages[side]["time"][rows]).cast(TIME)
            values[f"{side}_position"] = pa.array(messages[side]["position"][rows])
            taken = (column.take(pa.array(rows)) for column in columns[side])
            values |= {f"{own.name}_{name}": column for name, column in zip(own.types, taken, strict=True)}
        tables.append(pa.Table.from_arrays([values[name] for name in schema.names], schema=schema))
    return pa.concat_tables(tables)


def lone_rows(
    spec: JoinSpec, side: str, keys: pa.Array, messages: Messages, op: str, context: BatchContext
) -> pa.Table:
    """Return the rows of join_changelog of messages of a side without a partner, whose position is 0; `op` is upsert or delete."""
    own, n, schema = spec.side(side), len(messages), join_schema(spec, marks=False)
    found: dict[str, pa.Array] = {
        "op": pa.repeat(op, n),
        "join_key": keys.take(pa.array(messages.codes)),
        f"{side}_time": pa.array(messages["time"]).cast(TIME),
        f"{side}_position": pa.array(messages["position"]),
        f"{other_of(side)}_position": pa.repeat(0, n).cast(pa.int64()),
        "revision": pa.repeat(context.batch_id, n).cast(pa.int64()),
        "emitted_at": pa.repeat(context.clock_us, n).cast(TIME),
    }
    if op == "upsert":
        columns = zip(own.types, unpacked(own, messages.columns), strict=True)
        found |= {f"{own.name}_{name}": column for name, column in columns}
    return pa.Table.from_arrays([found.get(f.name, pa.nulls(n, f.type)) for f in schema], schema=schema)


def deleted_rows(spec: JoinSpec, removals: pa.Table | None, context: BatchContext) -> pa.Table:
    """Return the rows that delete the pairs which tombstones name, each once; for its time such a row has the pair's."""
    schema = join_schema(spec, marks=False)
    if removals is None:
        return schema.empty_table()
    names = {"key": "join_key", "left_position": "left_position", "right_position": "right_position"}
    # By several threads the rows come in another order each time, and a batch that is run again must give the same.
    grouped = removals.group_by(list(names), use_threads=False).aggregate([("time_us", "max")])
    pairs_of = grouped.select(list(names)).rename_columns(list(names.values()))
    n = len(pairs_of)
    found = {
        "op": pa.repeat("delete", n),
        **{name: combined(pairs_of[name]) for name in pairs_of.column_names},
        "left_time": combined(grouped["time_us_max"]).cast(TIME),
        "revision": pa.repeat(context.batch_id, n),
        "emitted_at": pa.repeat(context.clock_us, n).cast(TIME),
    }
    return pa.Table.from_arrays([found.get(f.name, pa.nulls(n, f.type)) for f in schema], schema=schema)


def message_rows(spec: JoinSpec, side: str, keys: pa.Array, messages: Messages) -> pa.Table:
    """Return the rows of join_messages of a side's messages."""
    own, n, schema = spec.side(side), len(messages), message_schema(spec, marks=False)
    columns = zip(own.types, unpacked(own, messages.columns), strict=True)
    found: dict[str, pa.Array] = {
        SIDE: pa.repeat(side, n),
        "join_key": keys.take(pa.array(messages.codes)),
        "time": pa.array(messages["time"]).cast(TIME),
        POSITION: pa.array(messages["position"]),
        **{f"{own.name}_{name}": column for name, column in columns},
        "revision": pa.array(messages["revision"]),
        "is_late": pa.array(messages.has(IS_LATE)),
    }
    return pa.Table.from_arrays([found.get(f.name, pa.nulls(n, f.type)) for f in schema], schema=schema)


def late_rows(late: pa.Table, inputs: Inputs, context: BatchContext) -> pa.Table:
    """Return the rows of the table of late events, with their positions."""
    position = np.empty(len(late), np.int64)
    for side in SIDES:
        rows = pc.equal(combined(late[SIDE]), side).to_numpy(zero_copy_only=False)
        if rows.any():
            chunk, row = (late[name].to_numpy()[rows] for name in (CHUNK, ROW))
            position[rows] = Numbering.of(inputs, context.state, side).positions(chunk, row)
    return late.drop_columns([CHUNK, ROW]).append_column(POSITION, pa.array(position))
