"""The corrections of keyed tables: a tombstone deletes a row that is still at a revision (docs/rules.md, rule 151).

An expiry of a topic says that the row of a record has expired (rule 181).
"""

import pyarrow as pa

from sessionlake.columnar.arrays import Bools, combined
from sessionlake.engine.operator import Keyed, Split
from sessionlake.sources.record_columns import EXPIRY, TOMBSTONE_KIND
from sessionlake.stream.control import CorrectionKind, is_keyless, is_null, micros

REMOVE = "remove"
"""Kind of the rows that go to shards: one for each tombstone or expiry."""
REMOVE_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("correction_id", "key")),
        *((name, pa.int64()) for name in ("start_us", "revision", "offset", "partition")),
    ]
)
"""`start_us` is the time that the row was said to have, for the record. A tombstone has a revision, an expiry offset and partition."""


def _bad_tombstone(table: pa.Table) -> Bools:
    return is_keyless(table) | is_null(table, "revision")


def _bad_expiry(table: pa.Table) -> Bools:
    return is_keyless(table) | is_null(table, "source_offset", "source_partition")


def _removals(rows: pa.Table) -> Split:
    nothing = pa.nulls(rows.num_rows, pa.int64())
    yield _removed(rows, rows["revision"], nothing, nothing)


def _expiries(rows: pa.Table) -> Split:
    yield _removed(rows, pa.nulls(rows.num_rows, pa.int64()), rows["source_offset"], rows["source_partition"])


def _removed(rows: pa.Table, *numbers: pa.ChunkedArray | pa.Array) -> Keyed:
    ids, keys = (combined(rows[name]) for name in ("correction_id", "key"))
    arrays = [ids, keys, pa.array(micros(rows["start_time"])), *map(combined, numbers)]
    return Keyed(REMOVE, keys, pa.Table.from_arrays(arrays, schema=REMOVE_SCHEMA))


KINDS = {TOMBSTONE_KIND: CorrectionKind(_bad_tombstone, _removals), EXPIRY: CorrectionKind(_bad_expiry, _expiries)}
