"""The corrections of processors (rule 355): a key's state is reset, or one output row deleted. Both take effect whatever there is."""

import pyarrow as pa

from sessionlake.columnar.arrays import Bools, combined
from sessionlake.engine.operator import Counted, Keyed, Split
from sessionlake.stream.control import CorrectionKind, is_null, micros, no_time

RESET, TOMBSTONE = "reset", "tombstone"
"""Kinds of corrections, and of the rows that go to shards for them."""
TOMBSTONE_SCHEMA = pa.schema(
    [("key", pa.string()), ("time_us", pa.int64()), ("position", pa.int64()), ("ordinal", pa.int64())]
)


def _bad_reset(table: pa.Table) -> Bools:
    return is_null(table, "key")


def _resets(rows: pa.Table) -> Split:
    keys = combined(rows["key"])
    yield Keyed(RESET, keys, pa.table({"key": keys}))
    yield Counted({"applied": rows.num_rows})


def _bad_tombstone(table: pa.Table) -> Bools:
    return no_time(table["start_time"]) | is_null(table, "key", "ordinal", "other_ordinal")


def _tombstones(rows: pa.Table) -> Split:
    keys, position, ordinal = (combined(rows[name]) for name in ("key", "ordinal", "other_ordinal"))
    arrays = [keys, pa.array(micros(rows["start_time"])), position, ordinal]
    yield Keyed(TOMBSTONE, keys, pa.Table.from_arrays(arrays, schema=TOMBSTONE_SCHEMA))
    yield Counted({"applied": rows.num_rows})


KINDS = {
    RESET: CorrectionKind(_bad_reset, _resets, at_once=True),
    TOMBSTONE: CorrectionKind(_bad_tombstone, _tombstones, at_once=True),
}
