"""A tombstone that deletes a row of a key if it is still at a revision (docs/rules.md, rule 318)."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.columnar.records import Records
from sessionlake.engine.operator import Keyed, Split
from sessionlake.stream.control import CorrectionKind, is_keyless, is_null, micros

REMOVE, TOMBSTONE = "remove", "tombstone"
"""The kind of the rows that go to shards, one for each tombstone, and the correction."""
DECIDED = {REMOVE: TOMBSTONE}
"""Kinds of rows that a shard decides, and the corrections that they are of."""
REMOVE_SCHEMA = pa.schema(
    [("correction_id", pa.string()), ("key", pa.string()), ("start_us", pa.int64()), ("revision", pa.int64())]
)
"""`start_us` is the time that the row was said to have, for the record."""


def _malformed(table: pa.Table) -> Bools:
    return is_keyless(table) | is_null(table, "revision")


def _removals(rows: pa.Table) -> Split:
    ids, keys, revision = (combined(rows[name]) for name in ("correction_id", "key", "revision"))
    start = pa.array(micros(rows["start_time"]))
    yield Keyed(REMOVE, keys, pa.Table.from_arrays([ids, keys, start, revision], schema=REMOVE_SCHEMA))


KINDS = {TOMBSTONE: CorrectionKind(_malformed, _removals)}


def removed_by(removals: pa.Table, codes: Ints, stored: Records) -> tuple[Bools, frozenset[str]]:
    """Return which stored rows tombstones delete, and the ids of the tombstones that delete none.

    `codes` are those of the tombstones' keys; the stored rows' are ascending and distinct. If two name a row, the lower
    correction_id wins.
    """
    ids, revision = combined(removals["correction_id"]), removals["revision"].to_numpy()
    # The stored codes are ascending, so each tombstone's row is found by bisection.
    row = np.searchsorted(stored.codes, codes)
    fits = row < len(stored)
    fits[fits] = stored.codes[row[fits]] == codes[fits]
    fits[fits] = stored.revision[row[fits]] == revision[fits]
    # In order of the ids, np.unique's first index of a row is the lowest id that names it.
    order: Ints = pc.sort_indices(ids).to_numpy().astype(np.int64)
    order = order[fits[order]]
    rows, first = np.unique(row[order], return_index=True)
    gone, left = np.zeros(len(stored), bool), np.ones(len(ids), bool)
    gone[rows], left[order[first]] = True, False
    return gone, frozenset(ids.filter(pa.array(left)).to_pylist())
