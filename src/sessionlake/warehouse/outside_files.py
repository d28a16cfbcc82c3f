"""Files that a Delta table's log names outside of the table: who may write a table would have any file read that its reader may."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.warehouse.delta_log import DeltaLog
from sessionlake.warehouse.own_paths import ABOVE, ABSOLUTE, SCHEME, is_outside
from sessionlake.warehouse.table_files import files_of
from sessionlake.warehouse.tables import Table

_OWN_PREFIX = r"^[A-Za-z0-9_\-]*.{20}$"
"""The place of a deletion vector in the table: a directory that Delta has chosen at random, then 20 characters of an id."""
_KINDS = ("add", "cdc", "remove")


def outside_of_version(table: DeltaLog, version: int) -> str | None:
    """Return a file outside of the table that a commit names; None if there is none, or the commit is gone."""
    for line in (table.text(version) or "").split("\n"):
        if any(f'"{kind}"' in line for kind in _KINDS):
            entry = json.loads(line)
            found = next((one for kind in _KINDS if (one := _outside(entry.get(kind) or {}))), None)
            if found is not None:
                return found
    return None


def outside_of_snapshot(table: Table, version: int) -> str | None:
    """Return a file outside of the table that a version consists of, of its checkpoint or its commits; None if there is none."""
    log = table.delta_log()
    rest = [getattr(log, f"getSnapshotAt$default${i}")() for i in (2, 3, 4)]
    files = DataFrame(files_of(table.spark, log.getSnapshotAt(version, *rest)).toDF(), table.spark)
    vector = F.col("deletionVector")
    place = F.when(_is_vector_outside(vector), vector["pathOrInlineDv"]).when(
        _is_path_outside(F.col("path")), F.col("path")
    )
    found = files.select(place.alias("place")).where("place is not null").head()
    return None if found is None else str(found[0])


def _outside(action: Mapping[str, Any]) -> str | None:
    path, vector = str(action.get("path") or ""), action.get("deletionVector") or {}
    if is_outside(path):
        return path
    kind, place = vector.get("storageType"), str(vector.get("pathOrInlineDv"))
    return place if kind == "p" or (kind == "u" and re.search(_OWN_PREFIX, place) is None) else None


def _is_path_outside(path: Column) -> Column:
    plain = F.coalesce(F.try_url_decode(path), path)
    return F.rlike(path, F.lit(SCHEME)) | F.rlike(plain, F.lit(ABSOLUTE)) | F.rlike(plain, F.lit(ABOVE))


def _is_vector_outside(vector: Column) -> Column:
    kind, place = vector["storageType"], vector["pathOrInlineDv"]
    return F.coalesce((kind == "p") | ((kind == "u") & ~F.rlike(place, F.lit(_OWN_PREFIX))), F.lit(False))
