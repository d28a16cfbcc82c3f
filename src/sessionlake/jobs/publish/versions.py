"""The table of [sink.delta] with `history = true`: a row for each version of a row, with the time in which it held (rule 332)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, TimestampType

from sessionlake.errors import ConfigError
from sessionlake.jobs.publish.results import CHANGE, DELETE, Results
from sessionlake.warehouse.changelog import CAUSE, SPARK, UPDATE
from sessionlake.warehouse.seen import Visible
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import read_batches

FROM, TO = "valid_from", "valid_to"
"""The columns of the time in which a version holds: from the first on, inclusive, up to the second, exclusive, which is null of the version that holds now."""
CLOSES = "_closes"
"""The column of rows that close the version which holds in the table: the others are versions."""
_AT, _BEGUN, _BEFORE, _BATCH = "_at", "_begun", "_before", "batch_id"


@dataclass(frozen=True)
class Versions:
    """The versions of the rows of a pipeline's results, and the columns that they have."""

    tables: Tables
    results: Results

    def fields(self, now: Visible) -> list[StructField]:
        """Return the columns of the table."""
        taken = next((field.name for field in self.results.fields(now) if field.name.lower() in {FROM, TO}), None)
        if taken is not None:
            raise ConfigError(
                f"sink.delta.history: the results have a column {taken!r}, which versions have, too; write another name"
            )
        when = {FROM: "From when on the row was so, inclusive", TO: "Until when, exclusive; null if it is so now"}
        times = [StructField(name, TimestampType(), True, {"comment": text}) for name, text in when.items()]
        return [*self.results.fields(now), *times]

    def all(self, now: Visible) -> DataFrame:
        """Return the rows as of a batch as versions that hold, with FROM and TO."""
        rows = self._timed(self._rows(now).withColumn(_BATCH, F.col("revision")), now)
        return rows.withColumns({FROM: F.col(_AT), TO: F.lit(None).cast("timestamp")})

    def after(self, before: Visible, now: Visible, held: DataFrame) -> DataFrame:
        """Return the versions that came between two batches, and what closes those of `held`, the versions that hold in the table."""
        return self._versions(self._timed(self.results.changes(before, now), now), held, now)

    def unlike(self, now: Visible, held: DataFrame) -> DataFrame:
        """Return the same if changes in between are not known: versions of rows that are not as they hold, as of now."""
        names = [name for name in self._names(now) if name != "revision"]
        as_one = F.struct(*(F.col(SPARK.named(name)).cast("string") for name in names))
        rows, identity = self._rows(now), self._identity
        there = held.select(*identity, as_one.alias("_held"), F.col(FROM).alias(_BEFORE))
        differ = (
            rows.withColumn("_now", as_one)
            .join(there, identity, "left")
            .where(~F.col("_now").eqNullSafe(F.col("_held")))
        )
        put = differ.select(*rows.columns, F.lit("upsert").alias(CHANGE))
        gone = held.join(rows.select(*identity), identity, "left_anti").select(
            *rows.columns, F.lit(DELETE).alias(CHANGE)
        )
        # Nothing says when a row went.
        causes = (rows.withColumn(CAUSE, F.lit(cause)) for rows, cause in ((put, UPDATE), (gone, None)))
        changes = reduce(DataFrame.unionByName, causes).withColumn(_BATCH, F.lit(now.batch_id).cast("bigint"))
        return self._versions(self._timed(changes, now), held, now)

    def _rows(self, now: Visible) -> DataFrame:
        return self.results.signed(None, now).select(*self._columns(self._names(now)))

    def _versions(self, changes: DataFrame, held: DataFrame, now: Visible) -> DataFrame:
        """Return, of changes in their batches, the versions that they make and the rows that close what holds."""
        identity = self._identity
        begun = held.select(*identity, F.col(FROM).alias(_BEGUN))
        row = Window.partitionBy(*identity).orderBy(_BATCH)
        rows = changes.join(begun, identity, "left")
        # Never before the change that came before, of whatever time.
        rows = rows.withColumn(_AT, F.greatest(F.max(_AT).over(row), F.col(_BEGUN)))
        rows = rows.withColumns({TO: F.lead(_AT).over(row), "_first": F.row_number().over(row) == 1}).withColumnRenamed(
            _AT, FROM
        )
        columns = [*self._columns(self._names(now)), F.col(FROM)]
        # A version that the next one follows at the same time never held.
        held_once = F.col(TO).isNull() | (F.col(TO) > F.col(FROM))
        made = rows.where((F.col(CHANGE) != DELETE) & held_once)
        closing = rows.where(F.col("_first") & F.col(_BEGUN).isNotNull())
        none = F.lit(None).cast("timestamp").alias(TO)
        return made.select(*columns, TO, F.lit(False).alias(CLOSES)).unionByName(
            closing.select(*columns, none, F.lit(True).alias(CLOSES))
        )

    def _timed(self, rows: DataFrame, now: Visible) -> DataFrame:
        """Return rows with the time from which on they hold: when their batch was committed, unless a row names an event's."""
        began = self.tables.changelog.began
        last = Window.partitionBy(F.lit(0)).orderBy(_BATCH).rowsBetween(Window.unboundedPreceding, Window.currentRow)
        # The clock of a machine may go back.
        clock = read_batches(self.tables).select(_BATCH, F.max("committed_at").over(last).alias("_clock"))
        newest = clock.where(F.col(_BATCH) == now.batch_id).select(F.col("_clock").alias("_newest"))
        timed = rows.join(F.broadcast(clock), _BATCH, "left").crossJoin(F.broadcast(newest))
        own = F.lit(None).cast("timestamp") if began is None else F.col(began)
        if CAUSE in rows.columns:
            own = F.when(F.col(CAUSE) == UPDATE, own)
        return timed.withColumn(_AT, F.coalesce(own, "_clock", "_newest")).drop("_clock", "_newest")

    @property
    def _identity(self) -> list[str]:
        return list(self.tables.changelog.identity)

    def _names(self, now: Visible) -> list[str]:
        return [field.name for field in self.results.fields(now)]

    @staticmethod
    def _columns(names: Sequence[str]) -> list[Column]:
        return [F.col(SPARK.named(name)) for name in names]
