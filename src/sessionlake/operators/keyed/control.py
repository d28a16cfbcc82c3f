"""The corrections of keyed tables: a tombstone deletes a row that is still at a revision (docs/rules.md, rule 151)."""

import pyarrow as pa

from sessionlake.columnar.arrays import Bools, combined
from sessionlake.engine.operator import Keyed, Split
from sessionlake.stream.control import CorrectionKind, is_keyless, is_null, micros

REMOVE = "remove"
"""Kind of the rows that go to shards: one for each tombstone."""
REMOVE_SCHEMA = pa.schema(
    [("correction_id", pa.string()), ("key", pa.string()), ("start_us", pa.int64()), ("revision", pa.int64())]
)
"""`start_us` is the time that the row was said to have, for the record."""


def _bad_tombstone(table: pa.Table) -> Bools:
    return is_keyless(table) | is_null(table, "revision")


def _removals(rows: pa.Table) -> Split:
    ids, keys, revision = (combined(rows[name]) for name in ("correction_id", "session_key", "revision"))
    arrays = [ids, keys, pa.array(micros(rows["session_start"])), revision]
    yield Keyed(REMOVE, keys, pa.Table.from_arrays(arrays, schema=REMOVE_SCHEMA))


KINDS = {"tombstone": CorrectionKind(_bad_tombstone, _removals)}
