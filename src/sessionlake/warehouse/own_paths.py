"""Paths in a Delta table's log that leave the table, told without Spark."""

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from sessionlake.config.paths import is_remote, normal_path

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


def is_link_out(table: str, path: str) -> bool:
    """Say if a log's path is a local table's file with a link on the way out of the table's directory."""
    if is_remote(table):
        return False
    base = os.path.realpath(normal_path(table))
    return not os.path.realpath(f"{base}/{unquote(path)}").startswith(f"{base}/")


def outside_of_opened(table: "DeltaTable", at: str) -> str | None:
    """Return an outside file at a path or URI that the opened version names; None if there is none."""
    paths = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
    return next((path for path in paths if is_outside(path) or is_link_out(at, path)), None)
