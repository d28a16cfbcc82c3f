"""How the results of a pipeline, as another one sees them, differ between two batches (docs/rules.md, rules 300 and 301)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.config.sections import OperatorSection
from sessionlake.errors import PipelineStateError
from sessionlake.warehouse.changelog import SIGN, SPARK
from sessionlake.warehouse.seen import Visible
from sessionlake.warehouse.streamed_files import added, rows_of_files
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import fold_point, latest_changes, merged_rows, rows_meeting, utc_date

_SEEN = "_seen"


@dataclass(frozen=True)
class View:
    """A pipeline's results as another one sees them."""

    tables: Tables
    section: OperatorSection
    final: bool
    """Whether only rows are seen that events can't change any more."""

    def difference(self, before: Visible | None, now: Visible, columns: Sequence[str]) -> DataFrame:
        """Return the rows that are added and taken back between two batches: some columns, and SIGN.

        A row that is equal in those columns is neither. `before` is None if nothing was seen yet.
        """
        named = [F.col(SPARK.named(name)) for name in columns]
        if before is None:
            return self._as_of(now).where(self._sees(now)).select(*named, F.lit(1).alias(SIGN))
        if before.batch_id == now.batch_id:
            return self._as_of(now).where(F.lit(False)).select(*named, F.lit(1).alias(SIGN))
        changed = self._changed(before, now, columns)
        if not self.final or self.section.NEVER_CHANGES:
            return changed
        return changed.unionByName(self._closed(before, now).select(*named, F.lit(1).alias(SIGN)))

    def _changed(self, before: Visible, now: Visible, columns: Sequence[str]) -> DataFrame:
        """Return the difference of the rows that the batches in between have changed."""
        of, tail = self.tables.changelog, self._tail(before, now)
        new = self._latest(tail)
        old = self._narrowed(before, tail).where(self._sees(before)).withColumn(_SEEN, F.lit(True))
        new = new.withColumn(_SEEN, (F.col("op") == "upsert") & self._sees(now))
        new, old = new.alias("new"), old.alias("old")
        same_row = [F.col(f"new.{name}").eqNullSafe(F.col(f"old.{name}")) for name in of.identity]
        is_new, is_old = F.col(f"new.{_SEEN}"), F.coalesce(f"old.{_SEEN}", F.lit(False))
        pairs = [[F.col(f"{side}.{SPARK.named(name)}") for name in columns] for side in ("new", "old")]
        equal = F.lit(True)
        for left, right in zip(*pairs, strict=True):
            equal &= left.eqNullSafe(right)
        signed = [
            F.when(seen & ~(is_new & is_old & equal), F.struct(*values, F.lit(sign).alias(SIGN)))
            for seen, values, sign in zip((is_new, is_old), pairs, (1, -1), strict=True)
        ]
        rows = new.join(old, same_row, "left").select(F.explode(F.array(*signed)).alias("row"))
        return rows.where("row is not null").select("row.*")

    def _closed(self, before: Visible, now: Visible) -> DataFrame:
        """Return the rows that became final between the batches without a change."""
        unchanged = F.col("revision") <= before.batch_id
        if not self.tables.changelog.has_times:
            return self._as_of(now).where(self._sees(now) & ~self._sees(before) & unchanged)
        if now.close_us is None or now.close_us == before.close_us:
            return self._as_of(now).where(F.lit(False))
        # Before the first bound nothing had closed.
        low = -(1 << 60) if before.close_us is None else before.close_us - self.section.closes_late_us
        rows = rows_meeting(
            self.tables, low, snapshot_version=self._snapshot(now), changelog_version=now.version, until=now.batch_id
        )
        return rows.where(self._sees(now) & ~self._sees(before) & unchanged)

    def _sees(self, at: Visible) -> Column:
        """Return the condition of a row, as it was as of a batch, that is seen."""
        of = self.tables.changelog
        if not self.final or self.section.NEVER_CHANGES:
            return F.lit(True)
        if not of.has_times:
            return F.expr(self.section.final_sql(of.end, {"positions": at.positions}))
        closing = F.expr(self.section.closing_sql("unix_micros({})", of.end))
        return F.lit(False) if at.close_us is None else closing < at.close_us

    def _tail(self, before: Visible, now: Visible) -> list[list[str]]:
        """Return the files that each of the batches in between has added, as the log has them; they may be trimmed since."""
        table = self.tables[self.tables.changelog.changes]
        added_ = (added(table, version) for version in range(before.version + 1, now.version + 1))
        return [files for files in added_ if files]

    def _latest(self, tail: list[list[str]]) -> DataFrame:
        """Return the last change of each row."""
        of = self.tables.changelog
        table = self.tables[of.changes]
        files = [file for some in tail for file in some]
        rows = rows_of_files(table, files) if files else table.read().where(F.lit(False))
        rows = rows.where(F.col("op") != "emit")
        # A batch changes a row once.
        return rows if len(tail) < 2 else latest_changes(rows, of)

    def _as_of(self, at: Visible) -> DataFrame:
        """Return all rows as of a batch."""
        merged = partial(merged_rows, self.tables, changelog_version=at.version, until=at.batch_id)
        return merged(snapshot_version=self._snapshot(at))

    def _narrowed(self, at: Visible, tail: list[list[str]]) -> DataFrame:
        """Return the rows as of a batch, at least those that the rows of files are changes of."""
        of = self.tables.changelog
        merged = partial(merged_rows, self.tables, changelog_version=at.version, until=at.batch_id)
        first = _least([file for some in tail for file in some], of.start) if of.start in of.identity else None
        if first is None or not of.has_times:
            return merged(snapshot_version=self._snapshot(at))
        since = F.to_timestamp(F.lit(first))

        def narrow(rows: DataFrame) -> DataFrame:
            rows = rows.where(F.col(of.start) >= since)
            return rows.where(F.col(of.date) >= utc_date(since)) if of.date in rows.columns else rows

        return merged(snapshot_version=self._snapshot(at), narrowed=narrow)

    def _snapshot(self, at: Visible) -> int:
        """Return the newest version of the snapshot that has no change of a later batch."""
        table = self.tables[self.tables.changelog.snapshot]
        for version in table.versions():
            fold = fold_point(self.tables, version)
            if fold is None or fold <= at.batch_id:
                return version
        raise PipelineStateError(
            f"source.of: the results of {self.tables.warehouse!r} as of its batch {at.batch_id} are no longer in the log of {table.name!r}; "
            "use `sessionlake rebuild`, and run the pipelines more often than that log is kept (delta.logRetentionDuration)"
        )


def _least(files: Sequence[str], column: str) -> str | None:
    """Return the least value of a column by the statistics of files, which cut times to milliseconds; None if one has none."""
    stats = [json.loads(json.loads(file)["add"].get("stats") or "{}") for file in files]
    found = [one.get("minValues", {}).get(column) for one in stats]
    return None if None in found else min(found, default=None)
