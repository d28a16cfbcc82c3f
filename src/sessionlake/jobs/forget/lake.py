"""The places of a pipeline's tables that hold keys, and the removal of these rows from any table of the warehouse."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.column_names import titles_of
from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.jobs.forget.keys import Keys, keys_in_front, matching
from sessionlake.jobs.forget.wait_budget import Waits
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import changelogs_in
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.spark_columns import column
from sessionlake.warehouse.tables import Tables

_AT_ONCE_BYTES = 1 << 30
"""Files up to this size together are replaced in one commit."""
_FILE = "_holding_file"

_QUOTING = {schemas.JOB_RUNS: "arguments", schemas.QUALITY_RESULTS: "observed"}
"""Tables without keys that may quote a key, and the column that may quote it."""


SINK_TABLE = "sink.delta"
"""The name here of the table of [sink.delta], which lies outside of the warehouse."""
_WITH_TEXT = (schemas.DEAD_LETTERS, schemas.SOURCE_ROWS)
"""Tables whose rows have a text `raw`, in which a key may stand that could not be read."""


@dataclass(frozen=True)
class Holder:
    """A column of a table in which keys stand."""

    table: str
    column: str
    kind: Literal["key", "value", "quoted"]
    """The column is the key; or a row's text that counts if its key could not be read; or text that may quote a key."""

    @property
    def condition(self) -> str:
        """SQL that joins a row `t` with a key `k`. It stands in the table's log, and so must not name a key."""
        if self.kind == "key":
            return f"cast(t.{SPARK.named(self.column)} as string) = k.key"
        text = f"t.{SPARK.named(self.column)}"
        if self.kind == "quoted":
            return f"{text} rlike k.quoted"
        somewhere = f"not {text} rlike k.readable and {text} rlike k.word"
        return f"t.key is null and ({text} rlike k.value or ({somewhere}))"

    @property
    def columns(self) -> list[str]:
        """The columns that the condition reads."""
        return ["key", self.column] if self.kind == "value" else [self.column]


@dataclass(frozen=True)
class Lake:
    """A warehouse and the keys that it is searched for."""

    tables: Tables
    config: Config
    keys: Keys

    @cached_property
    def frame(self) -> DataFrame:
        """The keys, see `Keys.frame`."""
        # Sides may call a field differently, and of CSV and text any field counts.
        places = zip(*self.config.keys.values(), strict=True)
        # A field's name stands before its value, whatever it is in. Rows in which an element's name is not found are searched by words.
        fields = [() if self.formats & {"csv", "text"} else titles_of(place) for place in places]
        return self.keys.frame(self.tables.spark, fields, columns=bool(self.tables.changelog.key_columns))

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
        """The columns with keys, in every pipeline's tables and in this pipeline's tables."""
        return sorted({"key", *(of.key for of in self.changelogs), *keys_in_front(self.config)})

    @cached_property
    def holders(self) -> dict[str, list[Holder]]:
        """The columns that can hold keys, by table, in the order in which rows are removed.

        The snapshots come first: without the changelog's deletes their rows would be visible again. Then come the
        corrections: without their outcomes they would look like corrections that no batch has taken yet.
        """
        found = {}
        sink = self.config.sink.delta
        if sink is not None:
            self.tables.add(SINK_TABLE, sink.path)
        outside = [] if sink is None else [SINK_TABLE]
        first = {**{of.snapshot: 0 for of in self.changelogs}, schemas.CORRECTIONS: 1}
        names = (*self.tables.names(self.tables.warehouse), *outside)
        for name in sorted(names, key=lambda n: (first.get(n, 2), n)):
            if not name.startswith(("_", ".")) and self.tables[name].exists():
                found[name] = self._of(name, self.tables[name].read().columns)
        return {name: holders for name, holders in found.items() if holders}

    def _of(self, name: str, columns: list[str]) -> list[Holder]:
        if name in _QUOTING:
            return [Holder(name, _QUOTING[name], "quoted")]
        found = [column for column in self._columns if column in columns]
        return [
            *(Holder(name, column, "key") for column in found),
            *([Holder(name, "raw", "value")] if name in _WITH_TEXT else []),
        ]

    def rows(self, holder: Holder, table: DataFrame | None = None) -> DataFrame:
        """Return the rows with a key, of the table as it is now or of some of its files."""
        table = self.tables[holder.table].read() if table is None else table
        return matching(table.alias("t"), self.frame, F.expr(holder.condition))

    def found_in(self, rows: Mapping[str, DataFrame], how: Literal["left_semi", "inner"], *columns: str) -> DataFrame:
        """Return `table` and some columns of the rows with a key, given by table; joined `inner`, with the key, a row for each."""
        # One join for all columns of keys: of a join for each, Java compiles the code of each.
        of = [F.col(column) for column in columns]
        keyed, joined = [], []
        frame = F.broadcast(self.frame.alias("k"))
        for holder in (holder for name in rows for holder in self.holders[name]):
            named = rows[holder.table].withColumn("table", F.lit(holder.table))
            if holder.kind == "key":
                keyed.append(named.select("table", column(holder.column).cast("string").alias("text"), *of))
            else:
                joined.append(named.alias("t").join(frame, F.expr(holder.condition), how))
        if keyed:
            joined.append(reduce(DataFrame.unionAll, keyed).alias("t").join(frame, F.expr("t.text = k.key"), how))
        kept = ["table", *columns, *(["k.key"] if how == "inner" else [])]
        return reduce(DataFrame.unionAll, [found.select(*kept) for found in joined])

    def files(self, names: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """Count the rows that hold a key, by table and file; by default in all tables; one Spark job."""
        names = list(self.holders if names is None else names)
        tables = {name: self.tables[name].read().withColumn(_FILE, F.col("_metadata.file_name")) for name in names}
        files: dict[str, dict[str, int]] = {name: {} for name in names}
        for row in self.found_in(tables, "left_semi", _FILE).groupBy("table", _FILE).count().collect():
            files[row["table"]][row[_FILE]] = row["count"]
        return files

    def counts_by_key(self) -> dict[str, int]:
        """Count each key's rows in all tables together; 0 if there are none; one Spark job."""
        rows = self.found_in({name: self.tables[name].read() for name in self.holders}, "inner")
        found = {row["key"]: row["count"] for row in rows.groupBy("key").count().collect()}
        return {**dict.fromkeys(self.keys.values, 0), **found}

    def unread(self) -> int:
        """Count the JSON dead letters in which no key can be found. They are searched for the keys as words."""
        if self.formats & {"csv", "text", "avro", "protobuf"} or schemas.DEAD_LETTERS not in self.holders:
            return 0
        rows = self.tables[schemas.DEAD_LETTERS].read().where("key is null and raw is not null").alias("t")
        readable = F.broadcast(self.frame.limit(1).alias("k"))
        return rows.join(readable, F.expr("not t.raw rlike k.readable"), "left_semi").count()

    def delete(self, name: str, files: Mapping[str, int], waits: Waits) -> int:
        """Remove the keys' rows from files of a table, as `files` found them; return the number of rows.

        Only these files are read, so appends may come between. If another job has replaced one of them, its rows are
        still in the table. In a snapshot they are searched for here; in another table the next call removes them.
        """
        self._replace(name, set(files), waits)
        removed = sum(files.values())
        if name not in [of.snapshot for of in self.changelogs]:
            return removed
        more = self.files([name])[name]
        return removed + (self.delete(name, more, waits) if more else 0)

    def _replace(self, name: str, left: set[str], waits: Waits) -> None:
        """Replace files by files without the keys' rows. Commits are small, because a conflict loses a commit's work."""

        def once() -> None:
            change = self.tables[name].replacement()
            there = change.named(left)
            some = _first(there, _AT_ONCE_BYTES)
            if some:
                kept = change.read(some, tracked=True)
                for holder in self.holders[name]:
                    kept = self._others(holder, kept)
                # DELETE would write its condition, keys and all, into the table's log.
                written = change.write(kept)
                failpoints.hit("forget_files_written")
                change.commit(written, some, self._metadata(name), changes_data=True)
            left.intersection_update(_name(path) for path in there if path not in some)

        while left:
            self.tables[name].retried_while(lambda _: waits(), once)

    def _others(self, holder: Holder, rows: DataFrame) -> DataFrame:
        return rows.alias("t").join(F.broadcast(self.frame.alias("k")), F.expr(holder.condition), "left_anti")

    def change(self, name: str, statement: str, waits: Waits) -> None:
        """Run a statement that rewrites files of a table, again if another commit came between."""

        def once() -> None:
            with self.tables.settings({USER_METADATA: user_metadata(self._metadata(name))}):
                self.tables.spark.sql(statement)

        self.tables[name].retried_while(lambda _: waits(), once)

    def _metadata(self, name: str) -> dict[str, Any]:
        """Return a commit's metadata: the run, and on a changelog also the metadata of the stream's last commit."""
        last = self.tables[name].last_commit() if name in [of.changes for of in self.changelogs] else None
        return {**(last.metadata if last else {}), "copied": True, "maintenance": {"job": "forget"}}


def _first(sizes: Mapping[str, int], most: int) -> list[str]:
    """Return the first files that have this many bytes together; at least one."""
    ends = accumulate(sizes.values())
    return [path for number, (path, end) in enumerate(zip(sizes, ends, strict=True)) if not number or end <= most]


def _name(path: str) -> str:
    return path.rpartition("/")[2]
