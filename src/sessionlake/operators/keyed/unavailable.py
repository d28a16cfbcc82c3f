"""Values that a change does not say, because the database did not touch them: they are those of the row before (docs/rules.md, rule 321)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints

_TEXT = "__debezium_unavailable_value"
_PLACEHOLDERS = pa.array([_TEXT, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", f'{{"{_TEXT}":"{_TEXT}"}}'])
"""The text that Debezium sends in their place: plain; in base64 in columns of bytes; and as JSON in those of hstore, which has a key with it."""
Unsaid = npt.NDArray[np.bool_]
"""Of each row, and of each column, whether the value is not said."""


def unsaid(columns: Sequence[Sequence[pa.Array]], rows: int) -> Unsaid:
    """Return which values are not said, given for each column those that it is computed of, or itself; only texts can be so."""
    found = np.zeros((rows, len(columns)), bool)
    for number, sources in enumerate(columns):
        for source in sources:
            if pa.types.is_string(source.type):
                found[:, number] |= _placeholders(source)
    return found


def _placeholders(column: pa.Array) -> Bools:
    there: Bools = pc.is_in(column, value_set=_PLACEHOLDERS).to_numpy(zero_copy_only=False)
    return there


@dataclass(frozen=True)
class Said:
    """Columns with values that were not said."""

    columns: list[pa.Array]
    still: Unsaid
    """Those that no row before says, and that are null."""
    gone: Unsaid
    """Those before which the row was deleted: they are null, whatever there was before."""


def said(columns: Sequence[pa.Array], missing: Unsaid, codes: Ints, order: Ints, deleted: Bools) -> Said:
    """Return columns in which values that are not said are those of the row before, of the same code by `order`.

    For example, the second row of code 0 does not say its value, nor does the only row of code 1:

    >>> found = said(
    ...     [pa.array(["a", "?", "?"])], np.array([[False], [True], [True]]), np.array([0, 0, 1]), np.arange(3), np.zeros(3, bool)
    ... )
    >>> found.columns[0].to_pylist(), found.still[:, 0].tolist()
    (['a', 'a', None], [False, False, True])
    """
    found, still, gone = list(columns), missing.copy(), np.zeros_like(missing)
    if not missing.any():
        return Said(found, still, gone)
    rows = np.lexsort((order, codes))
    place = np.arange(len(rows))
    begins = np.diff(codes[rows], prepend=-1) != 0
    first = np.maximum.accumulate(np.where(begins, place, 0))
    for number in np.flatnonzero(missing.any(axis=0)).tolist():
        last = np.maximum.accumulate(np.where(missing[rows, number], -1, place))
        source = np.full(len(rows), -1)
        known = last >= first
        source[rows[known]] = rows[last[known]]
        found[number] = columns[number].take(pa.array(source, mask=source < 0))
        still[:, number] = source < 0
        gone[:, number] = missing[:, number] & (source >= 0) & deleted[source]
    return Said(found, still, gone)
