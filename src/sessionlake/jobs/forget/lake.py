"""Where a pipeline's tables hold keys, and their rows removed: from whatever table of the warehouse has a key."""

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.jobs.forget.keys import Keys, matching
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import changelogs_in
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.tables import Tables

_ATTEMPTS = 20
_LISTING_TASKS = 32
# A deletion vector would leave the rows in their files.
_REWRITE = "spark.databricks.delta.merge.deletionVectors.persistent"
# By default VACUUM lists a table in 10,000 tasks: a minute for a table of ten files.
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


_QUOTING = {schemas.JOB_RUNS: "arguments", schemas.QUALITY_RESULTS: "observed"}
"""Tables without keys that may quote one, and the column that may."""


@dataclass(frozen=True)
class Holder:
    """A column of a table in which keys stand."""

    table: str
    column: str
    kind: Literal["key", "value", "quoted"]
    """The column is the key; or a row's text that counts where its key could not be read; or text that may quote a key."""

    @property
    def condition(self) -> str:
        """SQL that joins a row `t` with a key `k`. It stands in the table's log, and so must not name a key."""
        if self.kind == "key":
            return f"cast(t.`{self.column}` as string) = k.key"
        text = f"t.`{self.column}`"
        if self.kind == "quoted":
            return f"{text} rlike k.quoted"
        somewhere = f"not {text} rlike k.readable and {text} rlike k.word"
        return f"t.session_key is null and ({text} rlike k.value or ({somewhere}))"

    @property
    def columns(self) -> list[str]:
        """The columns that the condition reads."""
        return ["session_key", self.column] if self.kind == "value" else [self.column]


@dataclass(frozen=True)
class Lake:
    """A warehouse and the keys that it is searched for."""

    tables: Tables
    config: Config
    keys: Keys

    @cached_property
    def frame(self) -> DataFrame:
        """The keys, see `Keys.frame`."""
        # Sides may call a field differently, and of CSV any field counts.
        places = zip(*self.config.keys.values(), strict=True)
        return self.keys.frame(self.tables.spark, [() if "csv" in self.formats else place for place in places])

    @cached_property
    def formats(self) -> set[str | None]:
        """The formats of the sources."""
        return {side.source.format for side in self.config.inputs.values()}

    @cached_property
    def changelogs(self) -> list[Changelog]:
        """The pipeline's changelogs, that of the batches first."""
        return changelogs_in(self.tables)

    @property
    def _columns(self) -> list[str]:
        """The columns that are keys: of every pipeline's tables, and of those of its own."""
        return sorted({"session_key", *(of.key for of in self.changelogs)})

    @cached_property
    def holders(self) -> dict[str, list[Holder]]:
        """Where keys can stand, by table, in the order in which rows are removed.

        The snapshots are first: without the changelog's deletes their rows would be there again, until they go too. Then the
        corrections: without their outcomes they would be corrections that no batch has taken yet.
        """
        found = {}
        first = {**{of.snapshot: 0 for of in self.changelogs}, schemas.CORRECTIONS: 1}
        for name in sorted(self.tables.names(self.tables.warehouse), key=lambda n: (first.get(n, 2), n)):
            if not name.startswith(("_", ".")) and self.tables[name].exists():
                found[name] = self._of(name, self.tables[name].read().columns)
        return {name: holders for name, holders in found.items() if holders}

    def _of(self, name: str, columns: list[str]) -> list[Holder]:
        if name in _QUOTING:
            return [Holder(name, _QUOTING[name], "quoted")]
        found = [column for column in self._columns if column in columns]
        return [
            *(Holder(name, column, "key") for column in found),
            *([Holder(name, "raw", "value")] if name == schemas.DEAD_LETTERS else []),
        ]

    def rows(self, holder: Holder, table: DataFrame | None = None) -> DataFrame:
        """Return the rows with a key, of the table as it is now or of some of its files."""
        table = self.tables[holder.table].read() if table is None else table
        return matching(table.alias("t"), self.frame, F.expr(holder.condition))

    def counts(self) -> dict[str, int]:
        """Count the rows that hold a key, of each table; one Spark job."""
        found = [self.rows(h).select(F.lit(h.table).alias("table")) for hs in self.holders.values() for h in hs]
        rows = reduce(DataFrame.unionAll, found).groupBy("table").count().collect()
        return {**dict.fromkeys(self.holders, 0), **{row["table"]: row["count"] for row in rows}}

    def counts_by_key(self) -> dict[str, int]:
        """Count the rows of each key, of all tables together; 0 where there are none; one Spark job."""
        frame = F.broadcast(self.frame.alias("k"))
        found = [
            self.tables[h.table].read().alias("t").join(frame, F.expr(h.condition)).select("k.key")
            for hs in self.holders.values()
            for h in hs
        ]
        rows = reduce(DataFrame.unionAll, found).groupBy("key").count().collect()
        return {**dict.fromkeys(self.keys.values, 0), **{row["key"]: row["count"] for row in rows}}

    def unread(self) -> int:
        """Count the dead letters of JSON in which no key can be found, whoever's: they are searched for the keys as words."""
        if self.formats & {"csv", "avro"} or schemas.DEAD_LETTERS not in self.holders:
            return 0
        rows = self.tables[schemas.DEAD_LETTERS].read().where("session_key is null and raw is not null").alias("t")
        readable = F.broadcast(self.frame.limit(1).alias("k"))
        return rows.join(readable, F.expr("not t.raw rlike k.readable"), "left_semi").count()

    def delete(self, name: str) -> None:
        """Remove a table's rows of the keys. The stream's metadata goes on in the changelog's log."""
        for holder in self.holders[name]:
            self._merge(holder)

    def _merge(self, holder: Holder) -> None:
        # DELETE would write its condition, keys and all, into the table's log; of MERGE the log names columns only.
        view, name = "sessionlake_forget_keys", self.tables[holder.table].sql_name()
        self.frame.createOrReplaceTempView(view)
        try:
            self.change(
                holder.table, f"merge into {name} t using {view} k on {holder.condition} when matched then delete"
            )
        finally:
            self.tables.spark.catalog.dropTempView(view)

    def change(self, name: str, statement: str) -> None:
        """Run a statement that rewrites files of a table, again where another commit came between.

        A commit on a changelog carries the metadata of the stream's last one; every one says whose it is.
        """

        def once() -> None:
            last = self.tables[name].last_commit() if name in [of.changes for of in self.changelogs] else None
            mark = {"copied": True, "maintenance": {"job": "forget"}}
            metadata = user_metadata({**(last.metadata if last else {}), **mark})
            settings = {_REWRITE: "false", _LISTING: str(_LISTING_TASKS), USER_METADATA: metadata}
            with self.tables.settings(settings):
                self.tables.spark.sql(statement)

        self.tables[name].retried(_ATTEMPTS, once)
