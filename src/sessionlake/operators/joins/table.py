"""The pairs of joins. Light: who only reads tables imports it."""

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import combined
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import TimedChangelog
from sessionlake.warehouse.row_table import INT64, VALUES, Column, Role, RowTable
from sessionlake.warehouse.schemas import TIME

KEY = "The equal fields: one as its text, several as JSON, none as ''"
_LATER = Column("join_time", TIME, "The later of left_time and right_time")


def _timed(pairs: pa.Table) -> pa.Table:
    times = (combined(pairs[f"{side}_time"]).cast(INT64) for side in ("left", "right"))
    return pairs.append_column(_LATER.name, pc.max_element_wise(*times).cast(_LATER.type))


JOINS = RowTable(
    TimedChangelog(
        "join", time=_LATER.name, numbers=("left_position", "right_position"), state=(schemas.JOIN_MESSAGES,)
    ),
    (
        Column("join_key", pa.string(), KEY, Role.KEY),
        VALUES,
        Column("revision", INT64, "batch_id of the batch that sent the pair", Role.REVISION),
        Column("emitted_at", TIME, "The clock of the batch that sent the pair", Role.CLOCK),
    ),
    rows="joins",
    hashed=("left_position", "right_position"),
    computed=(_LATER,),
    compute=_timed,
)
"""The pairs; a pair's time, by which jobs and views go, is the later of its messages' times."""
