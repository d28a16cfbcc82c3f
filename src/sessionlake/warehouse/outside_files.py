"""Files in a Delta table's log that lie outside of the table: a writer of the table could make its reader read any file."""

import json
import os
import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sessionlake.config.paths import is_remote, normal_path
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse import spark_names
from sessionlake.warehouse.delta_log import DeltaLog
from sessionlake.warehouse.own_paths import ABOVE, ABSOLUTE, SCHEME, is_link_out, is_outside
from sessionlake.warehouse.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import Column

_OWN_PREFIX = r"^[A-Za-z0-9_\-]*.{20}$"
"""The place of a deletion vector in the table: a directory that Delta has chosen at random, then 20 characters of an id."""
_KINDS = ("add", "cdc", "remove")


def outside_of_version(table: DeltaLog, version: int) -> str | None:
    """Return a file outside of the table that a commit names; None if there is none, or the commit is gone."""
    # Every line that Java sees: it knows further ends of lines, and JSON has several ways to write `add`.
    for line in re.split(r"[\r\n]+", table.text(version) or ""):
        entry = json.loads(line) if line.strip() else {}
        found = next((one for kind in _KINDS if (one := _outside(entry.get(kind) or {}, table.uri))), None)
        if found is not None:
            return found
    return None


def outside_of_snapshot(table: Table, version: int) -> str | None:
    """Return an outside file of a version, from its checkpoint or its commits; None if there is none."""
    log = table.delta_log()
    rest = [getattr(log, f"getSnapshotAt$default${i}")() for i in (2, 3, 4)]
    # Not the list in the version's checksum: whoever writes the table writes that, too, and Delta reads others.
    files = spark_names.DataFrame(log.getSnapshotAt(version, *rest).allFiles().toDF(), table.spark)
    vector = F.col("deletionVector")
    place = F.when(_is_vector_outside(vector), vector["pathOrInlineDv"]).when(
        _is_path_outside(F.col("path")), F.col("path")
    )
    outside = files.select(place.alias("place")).where("place is not null").head()
    if outside is not None:
        return str(outside[0])
    paths = (str(row[0]) for row in files.select("path").toLocalIterator()) if _has_links(table.uri) else ()
    return next((path for path in paths if is_link_out(table.uri, path)), None)


def _has_links(table: str) -> bool:
    """Say if a local table's directory has a link: few have, and without one the paths need no single check."""
    if is_remote(table):
        return False
    paths = (Path(at, name) for at, *names in os.walk(normal_path(table)) for name in chain(*names))
    return any(path.is_symlink() for path in paths)


def _outside(action: Mapping[str, Any], table: str) -> str | None:
    path, vector = str(action.get("path") or ""), action.get("deletionVector") or {}
    if path and (is_outside(path) or is_link_out(table, path)):
        return path
    kind, place = vector.get("storageType"), str(vector.get("pathOrInlineDv"))
    return place if kind == "p" or (kind == "u" and re.search(_OWN_PREFIX, place) is None) else None


def _is_path_outside(path: "Column") -> "Column":
    plain = F.coalesce(F.try_url_decode(path), path)
    return F.rlike(path, F.lit(SCHEME)) | F.rlike(plain, F.lit(ABSOLUTE)) | F.rlike(plain, F.lit(ABOVE))


def _is_vector_outside(vector: "Column") -> "Column":
    kind, place = vector["storageType"], vector["pathOrInlineDv"]
    return F.coalesce((kind == "p") | ((kind == "u") & ~F.rlike(place, F.lit(_OWN_PREFIX))), F.lit(False))
