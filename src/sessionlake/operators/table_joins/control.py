"""The correction of joins of tables: a tombstone deletes a result, whatever there is (docs/rules.md, rule 327)."""

import pyarrow as pa

from sessionlake.columnar.arrays import Bools, combined
from sessionlake.engine.operator import Counted, Keyed, Split
from sessionlake.stream.control import CorrectionKind, is_null

TOMBSTONE = "tombstone"
"""Names a result: key is its joined_row_key, ordinal its left_position, other_ordinal its right_position."""
REMOVE = "remove"
"""Kind of the rows that go to shards: one for each tombstone."""
REMOVE_SCHEMA = pa.schema([("key", pa.string()), ("left_position", pa.int64()), ("right_position", pa.int64())])


def _malformed(table: pa.Table) -> Bools:
    return is_null(table, "key", "ordinal", "other_ordinal")


def _removals(rows: pa.Table) -> Split:
    columns = [combined(rows[name]) for name in ("key", "ordinal", "other_ordinal")]
    yield Keyed(REMOVE, columns[0], pa.Table.from_arrays(columns, schema=REMOVE_SCHEMA))
    yield Counted({"applied": rows.num_rows})


KINDS = {TOMBSTONE: CorrectionKind(_malformed, _removals, at_once=True)}
