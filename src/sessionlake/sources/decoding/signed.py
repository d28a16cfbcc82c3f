"""Rows of another pipeline's results: some are added, and others taken back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.sources.decoding.rows import Origin, Rows
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.warehouse.changelog import SIGN

PART = "_part"
"""The column of rows in order that says in which part of the order a row is; within a part they stand in order."""


@dataclass(frozen=True)
class SignedDecoder(TableDecoder):
    """Take rows as they are, each with its sign; see `Decoder` for the methods."""

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the rows."""
        yield self._signed(table, None)

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Yield the rows of each part."""
        del files
        at = combined(table[PART]).to_numpy()
        rows = table.drop_columns([PART])
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        for first, end in zip(starts.tolist(), [*starts[1:].tolist(), len(at)], strict=True):
            yield self._signed(rows.slice(first, end - first).combine_chunks(), Origin(0, (int(at[first]), 0, part)))

    def _signed(self, table: pa.Table, origin: Origin | None) -> Rows:
        sign = combined(table[SIGN]).to_numpy().astype(np.int64)
        rows = self._rows(table.drop_columns([SIGN]), origin)

        def raw(at: Ints) -> pa.Array:
            # The other pipeline may take a row back to forget a person.
            return pc.if_else(pa.array(sign[at] < 0), None, rows.raw(at))

        return replace(rows, raw=raw, sign=sign)
