"""The rows that a sink is to have: all rows, or the difference between two batches."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError, SourceError, UnreachableError
from sessionlake.warehouse.changelog import CAUSE, SIGN
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.seen import Visible
from sessionlake.warehouse.spark_columns import columns
from sessionlake.warehouse.streamed_files import are_gone
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.visible import CHANGED_IN, View, section_at

T = TypeVar("T")
LEAST_SIGN = "_least"
CHANGE, DELETE = "op", "delete"
_STATE, _RANK, _SUM = "state", "_rank", "_sum"
_log = logging.getLogger("sessionlake")


def unless_gone(read: Callable[[], T], warning: str, batch_id: int) -> T | None:
    """Return the result of `read`; None, with a warning that names a batch, if the changes since this batch were already trimmed."""
    try:
        return read()
    except Exception as error:
        if not is_gone(error):
            raise
    _log.warning(warning, batch_id)
    return None


def is_gone(error: Exception) -> bool:
    """Return True if an error means that the tables no longer have changes between two batches. Spark's errors are known by their text alone."""
    if isinstance(error, (PipelineStateError, SourceError)):
        return not isinstance(error, UnreachableError)
    return are_gone(str(error))


@dataclass(frozen=True)
class Results:
    """A pipeline's results as a sink of the config sees them; `sink` is the name in [sink]."""

    tables: Tables
    config: Config
    sink: str

    def signed(self, before: Visible | None, now: Visible) -> DataFrame:
        """Return `View.signed` in the columns of `fields`. Each row's last change counts; within a batch, the added row.

        Sessions in quarantine are left out: a session that gets there is only taken back.
        """
        return self._shown(self._view(now).signed(before, now, self._names(now)))

    def latest(self, before: Visible | None, now: Visible) -> DataFrame:
        """Return each row's last change in `signed`, with the least SIGN of the row's changes as LEAST_SIGN: -1 if the row was there before.

        A row that came and went in between is left out.
        """
        if before is None:
            return self.signed(None, now).withColumn(LEAST_SIGN, F.lit(1))
        row = Window.partitionBy(*self.tables.changelog.identity)
        last = F.row_number().over(row.orderBy(F.desc(CHANGED_IN), F.desc(SIGN)))
        rows = self.signed(before, now).withColumns(
            {_RANK: last, LEAST_SIGN: F.min(SIGN).over(row), _SUM: F.sum(SIGN).over(row)}
        )
        return rows.where((F.col(_RANK) == 1) & ((F.col(SIGN) > 0) | (F.col(_SUM) < 0)))

    def last(self, before: Visible, now: Visible) -> DataFrame:
        """Return the last change of each row between two batches, in the columns of `fields`: SIGN is 1 of a row that is there now, else -1.

        Rows as they were are not looked for: a row that is there may be equal to what it was, and one that is gone may never have been there before.
        Not for rows that are final.
        """
        rule = self.config.quarantined_sql(SPARK.micros)
        there = F.col("op") != DELETE
        if rule is not None:
            there &= F.expr(f"{rule} is null")
        return (
            self._view(now)
            .last_changes(before, now)
            .select(*columns(self._names(now)), F.when(there, 1).otherwise(-1).alias(SIGN))
        )

    def changes(self, before: Visible, now: Visible) -> DataFrame:
        """Return each change between two batches, in the columns of `fields`, with its batch, and as CHANGE `upsert` or `delete`.

        A session that gets into quarantine is deleted. If a row may say itself from when on it is so (`Changelog.began`), it has its CAUSE.
        """
        of, rule = self.tables.changelog, self.config.quarantined_sql(SPARK.micros)
        names = [*self._names(now), *([CAUSE] if of.began is not None else [])]
        kept = F.lit(True) if rule is None else F.expr(f"{rule} is null")
        change = F.when((F.col("op") != DELETE) & kept, "upsert").otherwise(DELETE)
        return self._view(now).changes(before, now).select(*columns(names), change.alias(CHANGE), "batch_id")

    def _shown(self, rows: DataFrame) -> DataFrame:
        rule = self.config.quarantined_sql(SPARK.micros)
        return rows if rule is None else rows.where(f"{rule} is null")

    def _names(self, now: Visible) -> list[str]:
        return [field.name for field in self.fields(now)]

    def fields(self, now: Visible) -> list[StructField]:
        """Return the columns of the live view as of a batch, but for the operator's state."""
        of = self.tables.changelog
        there = {*self.tables[of.changes].read(now.version).columns, *of.stored_sql(SPARK)} - {_STATE, *of.hidden}
        return [field for field in self.tables[of.snapshot].read().schema if field.name in there]

    def _view(self, now: Visible) -> View:
        section = section_at(self.tables, self.config.section, now)
        return View(self.tables, section, final=self.config.is_final(self.sink))
