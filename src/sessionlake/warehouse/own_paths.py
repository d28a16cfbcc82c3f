"""Paths in a Delta table's log that leave the table, told from their text, without Spark."""

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

if TYPE_CHECKING:
    from deltalake import DeltaTable

SCHEME = r"^[A-Za-z][A-Za-z0-9+.\-]*:"
ABSOLUTE = rf"^[/\\]|{SCHEME}[/\\]"
ABOVE = r"(^|[/\\])\.\.([/\\]|$)"


def is_outside(path: str) -> bool:
    """Say if a path of a log, which is percent-encoded, leaves the table.

    >>> [is_outside(path) for path in ("day=1/a%2Bb.parquet", "file:///etc/x", "/etc/x", "a/%2e%2e/%2e%2e/x", "..a/b..")]
    [False, True, True, True, False]
    """
    plain = unquote(path)
    return any(re.search(*one) for one in ((SCHEME, path), (ABSOLUTE, plain), (ABOVE, plain)))


def outside_of_opened(table: "DeltaTable") -> str | None:
    """Return a file outside of the table that its opened version names; None if there is none."""
    paths = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
    return next(filter(is_outside, paths), None)
