"""The rows that a sink which keeps a table is to have: all of them, or those by which two batches differ."""

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField

from sessionlake.config.load import Config
from sessionlake.warehouse.changelog import SPARK
from sessionlake.warehouse.seen import Visible
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.visible import View

_STATE = "state"


@dataclass(frozen=True)
class Results:
    """The results of a pipeline as a sink of its config, by its name in [sink], sees them."""

    tables: Tables
    config: Config
    sink: str

    def signed(self, before: Visible | None, now: Visible) -> DataFrame:
        """Return `View.signed` in the columns of `fields`: of each row the last change counts, and of one batch the row that is added.

        Sessions in quarantine are not among them: one that gets there is only taken back.
        """
        return self._shown(self._view.signed(before, now, self._names(now)))

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

    @cached_property
    def _view(self) -> View:
        return View(self.tables, self.config.section, final=self.config.is_final(self.sink))
