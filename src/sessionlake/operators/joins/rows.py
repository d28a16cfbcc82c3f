"""The rows of a join's tables that a shard puts out: of pairs, of messages, of late messages."""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.engine.operator import BatchContext, Inputs
from sessionlake.operators.joins.spec import POSITION, SIDE, JoinSpec, message_schema
from sessionlake.operators.joins.table import JOINS
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
    schema = spec.pairs_schema
    tables = [schema.empty_table()]
    for of_left, of_right in found:
        values: dict[str, pa.Array] = {}
        for side, rows in ((LEFT, of_left), (RIGHT, of_right)):
            own = spec.side(side)
            values[f"{side}_time"] = pa.array(messages[side]["time"][rows]).cast(TIME)
            values[f"{side}_position"] = pa.array(messages[side]["position"][rows])
            taken = (column.take(pa.array(rows)) for column in columns[side])
            values |= {f"{own.name}_{name}": column for name, column in zip(own.types, taken, strict=True)}
        tables.append(
            JOINS.changes(schema, "upsert", keys.take(pa.array(messages[LEFT].codes[of_left])), values, context)
        )
    return pa.concat_tables(tables)


def lone_rows(
    spec: JoinSpec, side: str, keys: pa.Array, messages: Messages, op: str, context: BatchContext
) -> pa.Table:
    """Return the rows of join_changelog of messages of a side without a partner, whose position is 0; `op` is upsert or delete."""
    own = spec.side(side)
    known: dict[str, pa.Array] = {
        f"{side}_time": pa.array(messages["time"]).cast(TIME),
        f"{side}_position": pa.array(messages["position"]),
        f"{other_of(side)}_position": pa.array(np.zeros(len(messages), np.int64)),
    }
    if op == "upsert":
        columns = zip(own.types, unpacked(own, messages.columns), strict=True)
        known |= {f"{own.name}_{name}": column for name, column in columns}
    return JOINS.changes(spec.pairs_schema, op, keys.take(pa.array(messages.codes)), known, context)


def deleted_rows(spec: JoinSpec, removals: pa.Table | None, context: BatchContext) -> pa.Table:
    """Return the rows that delete the pairs which tombstones name, each once; for its time such a row has the pair's."""
    if removals is None:
        return spec.pairs_schema.empty_table()
    # By several threads the rows come in another order each time, and a batch that is run again must give the same.
    grouped = removals.group_by(["key", *JOINS.hashed], use_threads=False).aggregate([("time_us", "max")])
    known = {name: combined(grouped[name]) for name in JOINS.hashed}
    known["left_time"] = combined(grouped["time_us_max"]).cast(TIME)
    return JOINS.changes(spec.pairs_schema, "delete", combined(grouped["key"]), known, context)


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
