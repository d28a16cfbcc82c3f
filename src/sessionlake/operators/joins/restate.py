"""Late messages as corrections that hand them in again, as if they were new."""

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import combined
from sessionlake.operators.joins.control import RESTATE
from sessionlake.operators.joins.spec import POSITION, SIDE, JoinSpec, Side
from sessionlake.operators.shared.sides.columns import packed
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.stream.capabilities import RESTATES_SCHEMA
from sessionlake.stream.ingest import event_struct, events_of
from sessionlake.warehouse.schemas import TIME

RESTATED_SCHEMA = RESTATES_SCHEMA.append(pa.field("kind", pa.string())).append(pa.field("ordinal", pa.int64()))


def restated_messages(spec: JoinSpec, late: pa.Table) -> pa.Table:
    """Return a restate for each late message."""
    found = [RESTATED_SCHEMA.empty_table()]
    for name in SIDES:
        rows, side = late.filter(pc.equal(late[SIDE], name)), spec.side(name)
        found_columns = events_of(side.events, _of_side(side, rows)).columns
        columns = [found_columns[column] for column in side.columns]
        time = combined(rows["time_us"]).cast(TIME)
        arrays = [
            combined(rows["key"]),
            time,
            time,
            pa.repeat(1, rows.num_rows),
            packed(side, columns, rows.num_rows),
            pa.repeat(RESTATE[name], rows.num_rows),
            combined(rows[POSITION]),
        ]
        found.append(pa.Table.from_arrays(arrays, schema=RESTATED_SCHEMA))
    return pa.concat_tables(found)


def _of_side(side: Side, rows: pa.Table) -> pa.Table:
    """Return late messages of a side with the struct of its own columns."""
    event, names = combined(rows["event"]), side.events.columns.inputs
    own = event_struct(side.events, [pc.struct_field(event, f"{side.name}_{name}") for name in names], len(rows))
    return rows.set_column(rows.schema.get_field_index("event"), "event", own)
