"""From the pairs that shards put out to rows of their changelog. Workers unpickle this, so that nothing of Spark is imported."""

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import combined
from sessionlake.columnar.identity import record_ids
from sessionlake.warehouse import schemas

JOIN_TIME = schemas.commented("join_time", schemas.TIME, "The later of left_time and right_time")
"""The one time of a pair, by which jobs and views go."""


def identified_pairs(pairs: pa.Table) -> pa.Table:
    """Return pairs with their time and the id that is a hash of their key and positions."""
    positions = (combined(pairs[f"{side}_position"]).to_numpy() for side in ("left", "right"))
    ids = record_ids(combined(pairs["join_key"]), *positions)
    times = (combined(pairs[f"{side}_time"]).cast(pa.int64()) for side in ("left", "right"))
    time = pc.max_element_wise(*times).cast(JOIN_TIME.type)
    return pairs.append_column("join_id", pa.array(ids)).append_column(JOIN_TIME.name, time)
