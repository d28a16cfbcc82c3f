"""Values that a change does not say, because the database did not touch them: they are those of the row before (docs/rules.md, rule 321)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints

_PLACEHOLDERS = pa.array(["__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="])
"""The text that Debezium sends in their place, plain and, in columns of bytes, in base64."""
Unsaid = npt.NDArray[np.bool_]
"""Of each row, and of each column, whether the value is not said."""


def unsaid(columns: Sequence[pa.Array], rows: int) -> Unsaid:
    """Return which values of some columns are not said; only texts can be so."""
    none = np.zeros(rows, bool)
    found = [_placeholders(column) if pa.types.is_string(column.type) else none for column in columns]
    return np.stack(found, axis=1) if found else np.zeros((rows, 0), bool)


def _placeholders(column: pa.Array) -> Bools:
    there: Bools = pc.is_in(column, value_set=_PLACEHOLDERS).to_numpy(zero_copy_only=False)
    return there


def said(columns: Sequence[pa.Array], missing: Unsaid, codes: Ints, order: Ints) -> tuple[list[pa.Array], Unsaid]:
    """Return columns in which values that are not said are those of the row before, of the same code by `order`; and which still are none.

    Those are null. A row that deletes its key says null for each value.

    For example, the second row of code 0 does not say its value, nor does the only row of code 1:

    >>> columns, still = said([pa.array(["a", "?", "?"])], np.array([[False], [True], [True]]), np.array([0, 0, 1]), np.arange(3))
    >>> columns[0].to_pylist(), still[:, 0].tolist()
    (['a', 'a', None], [False, False, True])
    """
    found, still = list(columns), missing.copy()
    if not missing.any():
        return found, still
    rows = np.lexsort((order, codes))
    place = np.arange(len(rows))
    begins = np.diff(codes[rows], prepend=-1) != 0
    first = np.maximum.accumulate(np.where(begins, place, 0))
    for number in np.flatnonzero(missing.any(axis=0)).tolist():
        last = np.maximum.accumulate(np.where(missing[rows, number], -1, place))
        source = np.full(len(rows), -1)
        known = last >= first
        source[rows[known]] = rows[last[known]]
        index = pa.array(source, mask=source < 0)
        found[number] = columns[number].take(index)
        still[:, number] = source < 0
    return found, still
