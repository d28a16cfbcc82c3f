"""The table of [sink.delta] with `history = true`: a row for each version of a row, with the time in which it held (rule 332)."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, TimestampType

from sessionlake.errors import ConfigError
from sessionlake.jobs.publish.results import CHANGE, DELETE, Results
from sessionlake.warehouse.batches import batches_after
from sessionlake.warehouse.changelog import CAUSE, UPDATE
from sessionlake.warehouse.seen import Visible
from sessionlake.warehouse.spark_columns import column, columns
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import read_batches

FROM, TO = "valid_from", "valid_to"
"""The columns of the time in which a version holds: from the first on, inclusive, up to the second, exclusive, which is null of the version that holds now."""
CLOSES = "_sessionlake_closes"
"""The column of rows that close the version which holds in the table: the others are versions."""
_AT, _BEGUN, _BOUND, _HELD, _FIRST, _CLOCK = (
    f"_sessionlake_{name}" for name in ("at", "begun", "bound", "held", "first", "clock")
)
_BATCH = "batch_id"


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
        clock = read_batches(self.tables).select(_BATCH, F.col("committed_at").alias(_CLOCK))
        rows = self._timed(self._rows(now).withColumn(_BATCH, F.col("revision")).join(clock, _BATCH, "left"), now)
        return rows.withColumns({FROM: F.col(_AT), TO: F.lit(None).cast("timestamp")})

    def after(self, before: Visible, now: Visible, table: DataFrame) -> DataFrame:
        """Return the versions between two batches, and the rows that close versions in the table."""
        since = batches_after(self.tables, before.version)
        clock = [(batch.batch_id, batch.committed_us) for batch in since if batch.batch_id <= now.batch_id]
        times = self.tables.spark.createDataFrame(clock, f"{_BATCH} bigint, {_CLOCK} bigint")
        times = times.withColumn(_CLOCK, F.timestamp_micros(_CLOCK))
        changes = self.results.changes(before, now).join(times, _BATCH, "left")
        return self._versions(self._timed(changes, now), table, now)

    def unlike(self, now: Visible, table: DataFrame) -> DataFrame:
        """Return the same if changes in between are not known: versions of rows that are not as they hold, as of now."""
        names, identity = self._names(now), self._identity
        compared = (column(name).cast("string") for name in names if name != "revision")
        rows, held, as_one = self._rows(now), table.where(f"{TO} is null"), F.struct(*compared)
        there = held.select(*identity, as_one.alias(_HELD))
        now_and_then = rows.withColumn(_AT, as_one).join(there, identity, "left")
        differ = now_and_then.where(~F.col(_AT).eqNullSafe(F.col(_HELD)))
        put = differ.select(*self._columns(names), F.lit("upsert").alias(CHANGE))
        gone = held.join(rows.select(*identity), identity, "left_anti")
        gone = gone.select(*self._columns(names), F.lit(DELETE).alias(CHANGE))
        if self.tables.changelog.began is not None:
            # Nothing says when a row went.
            put, gone = (some.withColumn(CAUSE, F.lit(cause)) for some, cause in ((put, UPDATE), (gone, "unknown")))
        batch, none = F.lit(now.batch_id).cast("bigint"), F.lit(None).cast("timestamp")
        changes = put.unionByName(gone).withColumns({_BATCH: batch, _CLOCK: none})
        return self._versions(self._timed(changes, now), table, now)

    def _rows(self, now: Visible) -> DataFrame:
        return self.results.signed(None, now).select(*self._columns(self._names(now)))

    def _versions(self, changes: DataFrame, table: DataFrame, now: Visible) -> DataFrame:
        """For changes with their batches, return the new versions, and the rows that close versions in the table."""
        identity = self._identity
        of_changed = table.join(changes.select(*identity).distinct(), identity, "left_semi")
        known = of_changed.groupBy(*identity).agg(
            F.max(F.when(F.col(TO).isNull(), F.col(FROM))).alias(_BEGUN),
            F.max(F.coalesce(TO, FROM)).alias(_BOUND),
        )
        row = Window.partitionBy(*identity).orderBy(_BATCH)
        rows = changes.join(known, identity, "left")
        # Never before the change that came before, whatever its time.
        rows = rows.withColumn(_AT, F.greatest(F.max(_AT).over(row), F.col(_BOUND)))
        rows = rows.withColumns({FROM: F.col(_AT), TO: F.lead(_AT).over(row), _FIRST: F.row_number().over(row) == 1})
        columns = [*self._columns(self._names(now)), F.col(FROM)]
        # A version never held if the next version begins at the same time.
        lasts = F.col(TO).isNull() | (F.col(TO) > F.col(FROM))
        made = rows.where((F.col(CHANGE) != DELETE) & lasts)
        closing = rows.where(F.col(_FIRST) & F.col(_BEGUN).isNotNull())
        none = F.lit(None).cast("timestamp").alias(TO)
        return made.select(*columns, TO, F.lit(False).alias(CLOSES)).unionByName(
            closing.select(*columns, none, F.lit(True).alias(CLOSES))
        )

    def _timed(self, rows: DataFrame, now: Visible) -> DataFrame:
        """Return rows with the time from which on they hold: the event's time if a row names it, else the time of the batch's commit.

        The latter is _CLOCK; null stands for the commit of `now`.
        """
        began, commit = self.tables.changelog.began, self.tables[self.tables.changelog.changes].commit(now.version)
        own = F.lit(None).cast("timestamp") if began is None else F.col(began)
        if began is not None and CAUSE in rows.columns:
            own = F.when(F.col(CAUSE) == UPDATE, own)
        newest = F.current_timestamp() if commit is None else F.timestamp_micros(F.lit(commit.metadata["committed_us"]))
        return rows.withColumn(_AT, F.coalesce(own, F.col(_CLOCK), newest)).drop(_CLOCK)

    @property
    def _identity(self) -> list[str]:
        return list(self.tables.changelog.identity)

    def _names(self, now: Visible) -> list[str]:
        return [field.name for field in self.results.fields(now)]

    @staticmethod
    def _columns(names: Sequence[str]) -> list[Column]:
        return columns(names)
