"""Where a pipeline's tables hold keys, and their rows removed: from whatever table of the warehouse has a key."""

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.config import Config
from sessionlake.engine import failpoints
from sessionlake.jobs.forget.keys import Keys, matching
from sessionlake.tables import USER_METADATA, Tables, user_metadata

_ATTEMPTS = 20
_LISTING_TASKS = 32
# A deletion vector would leave the rows in their files.
_REWRITE = "spark.databricks.delta.merge.deletionVectors.persistent"
# By default VACUUM lists a table in 10,000 tasks: a minute for a table of ten files.
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


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
        text = f"t.`{self.column}` rlike k.{self.kind}"
        return f"t.session_key is null and {text}" if self.kind == "value" else text

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
        is_csv = self.config.source.format == "csv"
        return self.keys.frame(self.tables.spark, None if is_csv else self.config.event.key)

    @cached_property
    def holders(self) -> dict[str, list[Holder]]:
        """Where keys can stand, by table, in the order in which rows are removed.

        The snapshot is first: without the changelog's deletes its rows would be sessions again, until they go too.
        """
        found = {}
        for name in sorted(self.tables.names(self.tables.warehouse), key=lambda n: (n != schemas.SESSIONS, n)):
            if not name.startswith(("_", ".")) and self.tables.exists(name):
                found[name] = self._of(name, self.tables.read(name).columns)
        return {name: holders for name, holders in found.items() if holders}

    def _of(self, name: str, columns: list[str]) -> list[Holder]:
        if name == schemas.JOB_RUNS:
            return [Holder(name, "arguments", "quoted")]
        if "session_key" not in columns:
            return []
        return [
            Holder(name, "session_key", "key"),
            *([Holder(name, "raw", "value")] if name == schemas.DEAD_LETTERS else []),
        ]

    def rows(self, holder: Holder, table: DataFrame | None = None) -> DataFrame:
        """Return the rows with a key, of the table as it is now or of some of its files."""
        table = self.tables.read(holder.table) if table is None else table
        return matching(table.alias("t"), self.frame, F.expr(holder.condition))

    def counts(self) -> dict[str, int]:
        """Count the rows that hold a key, of each table; one Spark job."""
        found = [self.rows(h).select(F.lit(h.table).alias("table")) for hs in self.holders.values() for h in hs]
        rows = reduce(DataFrame.unionAll, found).groupBy("table").count().collect()
        return {**dict.fromkeys(self.holders, 0), **{row["table"]: row["count"] for row in rows}}

    def delete(self, name: str) -> None:
        """Remove a table's rows of the keys. The stream's metadata goes on in the changelog's log."""
        failpoints.hit(f"forget_before_{name}")
        for holder in self.holders[name]:
            self._merge(holder)
        failpoints.hit(f"forget_after_{name}")

    def _merge(self, holder: Holder) -> None:
        # DELETE would write its condition, keys and all, into the table's log; of MERGE the log names columns only.
        view, name = "sessionlake_forget_keys", self.tables.sql_name(holder.table)
        self.frame.createOrReplaceTempView(view)
        try:
            self.change(
                holder.table, f"merge into {name} t using {view} k on {holder.condition} when matched then delete"
            )
        finally:
            self.tables.spark.catalog.dropTempView(view)

    def change(self, name: str, statement: str) -> None:
        """Run a statement that rewrites files of a table, again where another commit came between.

        A commit on the changelog carries the metadata of the stream's last one; every one says whose it is.
        """

        def once() -> None:
            last = self.tables.last_commit(name) if name == schemas.CHANGELOG else None
            mark = {"copied": True, "maintenance": {"job": "forget"}}
            metadata = user_metadata({**(last.metadata if last else {}), **mark})
            settings = {_REWRITE: "false", _LISTING: str(_LISTING_TASKS), USER_METADATA: metadata}
            with self.tables.settings(settings):
                self.tables.spark.sql(statement)

        self.tables.retried(name, _ATTEMPTS, once)
