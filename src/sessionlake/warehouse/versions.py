"""All versions of a changelog's rows, for a reader that takes the newest of each itself.

`views.merged_rows` lets Spark find the newest version of each row, by a sort of all of them. A reader in Python that has all
versions of a key (`columnar.newest`) does the same for a fraction of that (docs/decisions/0049-restore-in-parts.md).
"""

from collections.abc import Sequence
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING

from sessionlake.columnar.newest import LIVE, NAME, OLDEST, VERSION
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.changelog import DELETED, WRITTEN, Changelog
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import (
    Narrow,
    as_stored,
    bound_us,
    changes,
    first_start,
    fold_point,
    grown,
    hidden_us,
    meets,
    pinned_versions,
    row_versions,
    starting,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def all_versions(
    tables: Tables,
    columns: "Sequence[Column]",
    *,
    of: Changelog | None = None,
    until: int | None = None,
    deleted: bool = False,
    live: "Column | None" = None,
    narrowed: Narrow = lambda rows: rows,
    pinned: tuple[int, int] | None = None,
) -> "DataFrame":
    """Return columns, one of them `key`, of all versions of a changelog's rows, to be read with `columnar.newest`.

    `of`, `until`, `deleted` and `narrowed` are those of `merged_rows`. `live` is a further condition of rows, which the newest version
    alone must fulfil. `pinned` are versions of snapshot and changelog, by default the newest.
    """
    of = of or tables.changelog
    snapshot_version, changelog_version = pinned or pinned_versions(tables, None, None, of)
    fold = fold_point(tables, snapshot_version, of)
    stored = tables[of.snapshot].read(snapshot_version)
    later = changes(tables[of.changes].read(changelog_version), -1 if fold is None else fold, until)
    later = grown(as_stored(later, of), stored.schema, but=())
    conditions = [F.lit(True) if live is None else live]
    if of.keeps_deletions:
        hidden = hidden_us(tables, changelog_version)
        conditions += [] if deleted else [~F.col(DELETED)]
        conditions += [] if hidden is None else [F.col(DELETED) | (F.unix_micros(WRITTEN) > hidden)]

    def selected(rows: "DataFrame", version: "Column", *more: "Column") -> "DataFrame":
        is_live = F.coalesce(reduce(and_, [*conditions, *more]), F.lit(False))
        names = (F.col(name).alias(f"{NAME}{at}") for at, name in enumerate(of.identity) if name != of.key)
        return narrowed(rows).select(*columns, version.cast("bigint").alias(VERSION), is_live.alias(LIVE), *names)

    # Every change after the fold point is newer than the snapshot.
    return selected(stored, F.lit(OLDEST)).unionAll(
        selected(later, F.col("batch_id"), *([] if of.keeps_deletions else [F.col("op") != "delete"]))
    )


def versions_since(
    tables: Tables, columns: "Sequence[Column]", low_us: int, *, of: Changelog, until: int | None
) -> "DataFrame":
    """Return `all_versions` of the rows that have a time at `low_us` or after it, and start and end with times."""
    pinned = pinned_versions(tables, None, None, of)
    meeting = meets(of, low_us)
    first = _first_start(tables, of, low_us, pinned)
    return all_versions(
        tables, columns, of=of, until=until, live=meeting, narrowed=partial(starting, of, first, None), pinned=pinned
    )


def _first_start(tables: Tables, of: Changelog, low_us: int, pinned: tuple[int, int]) -> int | None:
    """Return a time before which no row starts that has a time at `low_us` or after it; None if there is no such row.

    It is the least start of the files that may have such a row. A scan would find a later one, but reads all rows.
    """
    first, last = bound_us("min", of.start), bound_us("max", of.end)
    files = [tables[name].files(version) for name, version in zip((of.snapshot, of.changes), pinned, strict=True)]
    first_rows, second_rows = (some.select(first.alias("first"), last.alias("last")) for some in files)
    bounds = first_rows.unionAll(second_rows)
    known, least = (
        bounds.where(F.col("last").isNull() | (F.col("last") >= low_us))
        .agg(F.coalesce(F.every(F.col("first").isNotNull() & F.col("last").isNotNull()), F.lit(True)), F.min("first"))
        .collect()[0]
    )
    if known:
        return least
    return first_start(
        row_versions(tables, snapshot_version=pinned[0], changelog_version=pinned[1], of=of).where(meets(of, low_us)),
        of,
    )
