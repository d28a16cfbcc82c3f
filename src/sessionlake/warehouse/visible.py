"""The difference of a pipeline's results, as another pipeline sees them, between two batches (docs/rules.md, rules 300 and 301)."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sessionlake.config.sections import OperatorSection
from sessionlake.errors import PipelineStateError, SourceError
from sessionlake.warehouse import schemas, spark_names
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.changelog import DELETED, SIGN
from sessionlake.warehouse.seen import Visible
from sessionlake.warehouse.spark_columns import columns as columns_of
from sessionlake.warehouse.streamed_files import added, rows_of_files
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import (
    as_stored,
    fold_point,
    grown,
    latest_changes,
    merged_rows,
    row_versions,
    rows_meeting,
    utc_date,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

CHANGED_IN = "_changed_in"
"""The column of signed rows with the batch that added them or took them back."""
_AT, _ROW = "_at", "_row"
_LATEST = 1 << 62
"""The version of a row that is later than any batch."""
_SIDES = (("new", 1), ("old", -1))


@dataclass(frozen=True)
class View:
    """A pipeline's results as another one sees them."""

    tables: Tables
    section: OperatorSection
    final: bool
    """Whether only rows are seen that events can't change any more."""
    read_at: str = "source.of"
    """The key in the reader's config by which it names the pipeline."""

    def signed(self, before: Visible | None, now: Visible, columns: Sequence[str]) -> "DataFrame":
        """Return rows that add up to `difference`, of which some may cancel: a row may be added, and taken back again.

        Each has the batch that changed it as CHANGED_IN, by which the changes of a row are in order.

        Rows as they were are read from `replaced_rows`, if that has them, and need not be found.
        """
        files = None if before is None or self.final else self._replaced(before, now)
        if before is None or files is None:
            return self.difference(before, now, columns).withColumn(CHANGED_IN, F.lit(now.batch_id))
        named, of = columns_of(columns), self.tables.changelog
        tail = [file for some in self._tail(before, now) for file in some]
        put = self._of_files(of.changes, tail).where("op = 'upsert'")
        was = self._of_files(schemas.REPLACED_ROWS, files).withColumn("op", F.lit("upsert"))
        new, old = (
            self._grown(as_stored(rows, of)).select(
                *named, F.lit(sign).alias(SIGN), F.col("batch_id").alias(CHANGED_IN)
            )
            for rows, sign in ((put, 1), (was, -1))
        )
        return new.unionByName(old)

    def _replaced(self, before: Visible, now: Visible) -> list[str] | None:
        """Return the files of the rows that the batches in between have replaced or deleted; None if a batch did not keep them."""
        changes, table = self.tables[self.tables.changelog.changes], self.tables[schemas.REPLACED_ROWS]
        batches = [changes.commit(version) for version in range(before.version + 1, now.version + 1)]
        made = [one.metadata for one in batches if one is not None and not one.metadata.get("copied")]
        if not table.exists() or not all(metadata.get("keeps_replaced") for metadata in made):
            return None
        files_added: list[str] = []
        for commit in table.batch_commits():
            if commit.metadata["batch_id"] <= before.batch_id:
                return files_added
            if commit.metadata["batch_id"] <= now.batch_id:
                files_added += added(table, commit.version)
        # The first version, which has no batch, is the table's creation.
        return files_added if table.has(0) else None

    def difference(self, before: Visible | None, now: Visible, columns: Sequence[str]) -> "DataFrame":
        """Return the rows that are added and taken back between two batches: some columns, and SIGN.

        A row that is equal in those columns is neither. Without `before` all rows as of `now` are added. PipelineStateError
        if the tables no longer have the rows as of `before`.
        """
        named = columns_of(columns)
        if before is None:
            return self._as_of(now).where(self._sees(now)).select(*named, F.lit(1).alias(SIGN))
        if before.batch_id == now.batch_id:
            return self._nothing().select(*named, F.lit(1).alias(SIGN))
        tail = self._tail(before, now)
        new = self._latest(tail)
        changed = self._changed(before, now, columns, new, self._versions(before, tail))
        if not self.final or self.section.facts.never_changes:
            return changed
        # Not by the revision: a row may be sent by a later batch than the one that changed it.
        identity = list(self.tables.changelog.identity)
        closed = self._closed(before, now).join(new.select(*identity), identity, "left_anti")
        return changed.unionByName(closed.select(*named, F.lit(1).alias(SIGN)))

    def changes(self, before: Visible, now: Visible) -> "DataFrame":
        """Return the changes of the batches after `before` up to `now`, each of them, in the columns of the tables.

        PipelineStateError if the tables no longer have them.
        """
        of = self.tables.changelog
        files = [file for some in self._tail(before, now) for file in some]
        return self._grown(as_stored(self._of_files(of.changes, files).where("op <> 'emit'"), of))

    def last_changes(self, before: Visible, now: Visible) -> "DataFrame":
        """Return the last of `changes` of each row, in the columns of the snapshot, with `op`."""
        return self._grown(self._latest(self._tail(before, now)))

    def _changed(
        self, before: Visible, now: Visible, columns: Sequence[str], new: "DataFrame", old: "DataFrame"
    ) -> "DataFrame":
        """Return the difference of rows changed by the batches in between; `new` are these batches' rows, `old` the earlier."""
        of = self.tables.changelog
        changed = new.select(*of.identity)
        rows = self._as(new, now, F.lit(_LATEST), columns).unionByName(
            self._as(old.join(changed, list(of.identity), "left_semi"), before, F.col("batch_id"), columns)
        )
        is_new = F.col(_AT) == _LATEST
        pairs = rows.groupBy(*of.identity).agg(
            F.first(F.when(is_new, F.col(_ROW)), ignorenulls=True).alias("new"),
            F.max_by(F.when(~is_new, F.col(_ROW)), F.when(~is_new, F.col(_AT))).alias("old"),
        )
        # A hidden row is null, like a missing row.
        differ = ~F.col("new").eqNullSafe(F.col("old"))
        # 0.0 equals -0.0, but not as a key or a text: a row would be taken back that was never added.
        for name in _with_doubles(rows.schema[_ROW].dataType):
            new_, old_ = (F.col(side).getField(name).cast("string") for side, _ in _SIDES)
            differ |= ~new_.eqNullSafe(old_)
        signed = [
            F.when(F.col(side).isNotNull(), F.struct(f"{side}.*", F.lit(sign).alias(SIGN))) for side, sign in _SIDES
        ]
        rows = pairs.where(differ).select(F.explode(F.array(*signed)).alias("row"))
        return rows.where("row is not null").select("row.*")

    def _as(self, rows: "DataFrame", at: Visible, version: "Column", columns: Sequence[str]) -> "DataFrame":
        """Return versions of rows: identity, version, and the columns as a struct, null for a hidden row."""
        seen = (F.col("op") != "delete") & self._sees(at)
        values = F.struct(*columns_of(columns))
        return rows.select(*self.tables.changelog.identity, version.alias(_AT), F.when(seen, values).alias(_ROW))

    def _closed(self, before: Visible, now: Visible) -> "DataFrame":
        """Return rows that became final between the batches, also changed ones."""
        if not self.tables.changelog.has_times:
            return self._as_of(now).where(self._sees(now) & ~self._sees(before))
        if now.close_us is None or now.close_us == before.close_us:
            return self._nothing()
        # Before the first bound nothing had closed.
        low = -(1 << 60) if before.close_us is None else before.close_us - self.section.closes_late_us
        rows = rows_meeting(
            self.tables,
            low,
            snapshot_version=self._snapshot(now),
            changelog_version=self._changelog(now),
            until=now.batch_id,
        )
        return rows.where(self._sees(now) & ~self._sees(before))

    def _sees(self, at: Visible) -> "Column":
        """Return the condition of a row, as it was as of a batch, that is seen."""
        of = self.tables.changelog
        if not self.final or self.section.facts.never_changes:
            return F.lit(True)
        if not of.has_times:
            return F.expr(self.section.final_sql(of.end, {"positions": at.positions}))
        closing = F.expr(self.section.closing_sql("unix_micros({})", of.end))
        return F.lit(False) if at.close_us is None else closing < at.close_us

    def _tail(self, before: Visible, now: Visible) -> list[list[str]]:
        """Return, for each batch after `before` up to `now`, the files that it added, as the log has them; the table may be without them since."""
        table = self.tables[self.tables.changelog.changes]
        try:
            added_ = [added(table, version) for version in range(before.version + 1, now.version + 1)]
        except SourceError as error:
            raise lost(self.read_at, self.tables) from error
        return [files for files in added_ if files]

    def _latest(self, tail: list[list[str]]) -> "DataFrame":
        """Return the last change of each row."""
        of = self.tables.changelog
        rows = self._of_files(of.changes, [file for some in tail for file in some]).where(F.col("op") != "emit")
        # A batch changes a row once.
        return as_stored(rows, of) if len(tail) < 2 else latest_changes(rows, of)

    def _of_files(self, name: str, files: Sequence[str]) -> "DataFrame":
        """Return the rows of a table's files, as its log has them."""
        table = self.tables[name]
        return rows_of_files(table, files) if files else table.read().where(F.lit(False))

    def _as_of(self, at: Visible) -> "DataFrame":
        """Return all rows as of a batch."""
        merged = partial(merged_rows, self.tables, changelog_version=self._changelog(at), until=at.batch_id)
        return self._grown(merged(snapshot_version=self._snapshot(at)))

    def _nothing(self) -> "DataFrame":
        """Return no rows, with all columns; without a look at the versions of the tables."""
        return self.tables[self.tables.changelog.snapshot].read().where(F.lit(False))

    def _versions(self, at: Visible, tail: list[list[str]]) -> "DataFrame":
        """Return the versions of rows up to a batch, with `op` and `batch_id`: of all rows that the files of `tail` change, and of others."""
        of = self.tables.changelog
        rows = row_versions(self.tables, snapshot_version=self._snapshot(at), changelog_version=self._changelog(at))
        rows = self._grown(rows).where(F.col("batch_id") <= at.batch_id)
        if of.keeps_deletions:
            rows = rows.withColumn("op", F.when(F.col(DELETED), "delete").otherwise(F.col("op")))
        first = _least([file for some in tail for file in some], of.start) if of.start in of.identity else None
        if first is None or not of.has_times:
            return rows
        since = F.to_timestamp(F.lit(first))
        return rows.where((F.col(of.start) >= since) & (F.col(of.date) >= utc_date(since)))

    def _grown(self, rows: "DataFrame") -> "DataFrame":
        """Return rows with the columns that the tables got later than the version which they were read of; these are null."""
        snapshot = self.tables[self.tables.changelog.snapshot].read()
        return grown(rows, snapshot.schema, but=self.tables.changelog.hidden)

    def _changelog(self, at: Visible) -> int:
        """Return the newest version of the changelog that has all changes which were there as of a batch.

        The files of the version of that batch may be gone, if keys were erased since.
        """
        table, found = self.tables[self.tables.changelog.changes], at.version
        for version in range(at.version + 1, table.latest_version() + 1):
            commit = table.commit(version)
            upkeep = {} if commit is None or not commit.metadata.get("copied") else commit.metadata
            # Of keys that were erased after a later batch, the rows as of this one are still to be taken back.
            if upkeep and ("trimmed_to" in upkeep.get("maintenance", {}) or upkeep.get("batch_id", -1) > at.batch_id):
                break
            found = version
        return found

    def _snapshot(self, at: Visible) -> int:
        """Return the newest version of the snapshot that has no change of a later batch."""
        table = self.tables[self.tables.changelog.snapshot]
        for version in table.versions():
            fold = fold_point(self.tables, version)
            if fold is None or fold <= at.batch_id:
                return version
        raise lost(self.read_at, self.tables)


def section_at(tables: Tables, section: OperatorSection, at: Visible) -> OperatorSection:
    """Return the section as the batch had it: the reader's may be of before a change that the stream has taken since."""
    commit = tables[tables.changelog.changes].commit(at.version)
    if commit is None:
        return section
    settings = commit.metadata["settings"]
    return section.as_taken(settings["rebuild"], settings["live"])


def lost(read_at: str, tables: Tables) -> PipelineStateError:
    """Return the error for results as of the batch that was read last, if these are gone; `read_at` as in `View`."""
    return PipelineStateError(
        f"{read_at}: the results in {tables.warehouse!r} as of the batch that was read last are gone; read all of it again with `sessionlake rebuild`, and "
        "run the pipelines more often than what was replaced there is kept (VACUUM, delta.logRetentionDuration)"
    )


def _with_doubles(row: "DataType") -> list[str]:
    """Return the columns of a row that have doubles, whose two zeros are equal and not the same."""
    fields = row.fields if isinstance(row, spark_names.StructType) else ()
    return [field.name for field in fields if re.search("double|float", field.dataType.simpleString())]


def _least(files: Sequence[str], column: str) -> str | None:
    """Return a column's least value by the files' statistics, which cut times to milliseconds; None if a file has none."""
    stats = [json.loads(json.loads(file)["add"].get("stats") or "{}") for file in files]
    least = [one.get("minValues", {}).get(column) for one in stats]
    return None if None in least else min(least, default=None)
