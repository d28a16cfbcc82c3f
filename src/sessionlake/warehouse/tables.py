"""The Delta tables of a warehouse: creation, reading, idempotent appends."""

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa

from sessionlake.errors import ConfigError, ContendedError, FencedError
from sessionlake.warehouse import spark_names
from sessionlake.warehouse.delta_log import Logs
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.filesystem import Files
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.lake import opened
from sessionlake.warehouse.replacement import Replacement
from sessionlake.warehouse.spark_columns import UNNAMABLE, unnamable, write_times_plainly
from sessionlake.warehouse.transactions import CONCURRENT, CONFLICT, Transactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_LOCAL = re.compile(r"/[^%\\]*")
"""Local paths that deltalake takes as they are: of a % or a backslash it makes another character."""


def spark_schema(schema: pa.Schema) -> "StructType":
    """Return an Arrow schema as Spark's, comments kept."""
    fields = spark_names.from_arrow_schema(schema).fields
    comments = [(f.metadata or {}).get(b"comment", b"").decode() for f in schema]
    return spark_names.StructType(
        [
            spark_names.StructField(f.name, f.dataType, True, {"comment": c} if c else None)
            for f, c in zip(fields, comments, strict=True)
        ]
    )


@contextmanager
def session_settings(spark: "SparkSession", values: Mapping[str, str]) -> Iterator[None]:
    """Hold settings of a session while the block runs."""
    conf = spark.conf
    before = {name: conf.get(name, None) for name in values}
    for name, value in values.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                conf.unset(name)
            else:
                conf.set(name, old)


def _names(schema: "StructType") -> Iterator[str]:
    """Yield the names of columns and of the fields of structs among them."""
    for field in schema:
        yield field.name
        if isinstance(field.dataType, spark_names.StructType):
            yield from _names(field.dataType)


class Table(Transactions):
    """A table, which need not be there, as Spark reads and writes it."""

    def create(
        self,
        schema: pa.Schema,
        comment: str,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a table unless it is there; `properties` are Delta's, without their prefix."""
        if self.exists():
            return
        settings = {f"delta.{key}": value for key, value in (properties or {}).items()}
        create = self._create_here if _LOCAL.fullmatch(self.uri) else self._create_through_spark
        try:
            create(spark_schema(schema), comment, settings)
        except Exception:
            # Delta refuses the second of two simultaneous creations, which is as good.
            if not self.exists():
                raise

    def grow(self, schema: pa.Schema, names: Collection[str] | None = None) -> None:
        """Add the columns of a schema, or `names` of them, that the existing table lacks. They are null in its rows."""
        wanted = schema.names if names is None else names

        def lacking() -> "list[StructField]":
            known = self.read().columns
            return spark_schema(pa.schema([f for f in schema if f.name in wanted and f.name not in known])).fields

        self._add(lacking, self.add_columns)

    def add_columns(self, fields: "Sequence[StructField]") -> None:
        """Add columns, which are null in the rows that are there."""
        self._extend(fields)

    def grow_struct(self, field: pa.Field) -> None:
        """Add the fields of a struct column that the table's column lacks. They are null in its rows."""

        def lacking() -> "list[StructField]":
            known = self.read().select(f"{SPARK.named(field.name)}.*").columns
            return [f for f in spark_schema(pa.schema(list(field.type))) if f.name not in known]

        self._add(lacking, lambda fields: self._extend(fields, field.name))

    def _extend(self, fields: "Sequence[StructField]", struct: str | None = None) -> None:
        """Add columns, or fields of a struct column."""
        if not fields:
            return
        named = spark_names.StructType(
            [*fields] if struct is None else [spark_names.StructField(struct, spark_names.StructType([*fields]))]
        )
        if name := unnamable([*_names(self.read().schema), *_names(named)]):
            if not _LOCAL.fullmatch(self.uri):
                raise ConfigError(f"{self.uri}: {UNNAMABLE.format(name)}")
            opened(self.uri).alter.add_columns(deltalake.Schema.from_json(named.json()).fields)
            return
        before = "" if struct is None else SPARK.named(struct) + "."
        columns = ", ".join(
            f"{before}{SPARK.named(field.name)} {field.dataType.simpleString()}"
            f" comment {SPARK.text(field.metadata.get('comment', ''))}"
            for field in fields
        )
        self.spark.sql(f"alter table {self.sql_name()} add columns ({columns})")

    def _add(self, lacking: "Callable[[], list[StructField]]", add: "Callable[[list[StructField]], None]") -> None:
        """Add what is lacking."""
        while fields := lacking():
            try:
                add(fields)
            except Exception:
                # Delta refuses the second of two simultaneous additions.
                if len(lacking()) == len(fields):
                    raise
            else:
                return

    def _create_here(
        self,
        schema: "StructType",
        comment: str,
        settings: dict[str, str],
    ) -> None:
        """Create a table on a local path, in some milliseconds. Spark takes half a second for each table."""
        deltalake.DeltaTable.create(
            self.uri,
            deltalake.Schema.from_json(schema.json()),
            description=comment,
            configuration=settings,
        )

    def _create_through_spark(
        self,
        schema: "StructType",
        comment: str,
        settings: dict[str, str],
    ) -> None:
        if name := unnamable(_names(schema)):
            raise ConfigError(f"{self.uri}: {UNNAMABLE.format(name)}")
        builder = (
            spark_names.DeltaTable.createIfNotExists(self.spark).location(self.uri).comment(comment).addColumns(schema)
        )
        for key, value in settings.items():
            builder = builder.property(key, value)
        builder.execute()

    def read(self, version: int | None = None) -> "DataFrame":
        """Return a table, pinned to a version if one is given."""
        reader = self.spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(self.uri)

    def append(
        self, rows: "DataFrame", app_id: str, app_version: int, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Append rows unless this (app_id, app_version), or a later one, was appended before; then do nothing, silently.

        Raises FencedError if another process does the same at this moment.
        """
        write_times_plainly(rows.sparkSession)
        writer = rows.write.format("delta").mode("append").option("txnAppId", app_id).option("txnVersion", app_version)
        if metadata is not None:
            writer = writer.option("userMetadata", user_metadata(metadata))
        try:
            writer.save(self.uri)
        except Exception as error:
            if CONCURRENT not in str(error):
                raise
            raise FencedError(
                f"table {self.uri!r}: another process writes batch or step {app_version} of {app_id!r} too; "
                "this one stops, keep only one running on this warehouse"
            ) from error

    def overwrite(self, rows: "DataFrame", options: Mapping[str, Any]) -> None:
        """Replace all rows, and the columns by the given ones; `options` are Delta's, and its properties."""
        write_times_plainly(rows.sparkSession)
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.options(**options).save(self.uri)

    def replacement(self) -> Replacement:
        """Begin to put files of a table in the place of others."""
        return Replacement(self.spark, self.delta_log(), self)

    def sql_name(self) -> str:
        """Return a table as SQL names it."""
        return f"delta.{SPARK.named(self.uri)}"

    def retried(self, attempts: int, action: Callable[[], object]) -> None:
        """Run a function that commits to a table; run it again if another commit came between.

        Raises ContendedError after the given number of attempts.
        """
        self.retried_while(lambda done: done < attempts, action)

    def retried_while(self, again: Callable[[int], bool], action: Callable[[], object]) -> None:
        """Run a function that commits to a table; run it again if another commit came between.

        `again` gets the number of attempts so far. ContendedError is raised if it returns False.
        """
        for attempt in itertools.count(1):
            try:
                action()
            except Exception as error:
                if not isinstance(error, FencedError) and not CONFLICT.search(str(error)):
                    raise
                if not again(attempt):
                    raise ContendedError(
                        f"table {self.uri!r}: {attempt} attempts to change it each conflicted with another writer; "
                        "run the job again when fewer jobs run"
                    ) from error
            else:
                return

    def append_rows(self, rows: pa.Table) -> None:
        """Append a few rows that the driver holds."""
        write_times_plainly(self.spark)
        frame = self.spark.createDataFrame(rows, spark_schema(rows.schema))
        frame.coalesce(1).write.format("delta").mode("append").save(self.uri)


class Tables(Files, Logs):
    """The tables of a warehouse path (a path or an object-store URI), by name."""

    @cached_property
    def _tables(self) -> dict[str, Table]:
        return {}

    def __getitem__(self, name: str) -> Table:
        """Return a table, whether it is there or not."""
        if name not in self._tables:
            self._tables[name] = Table(self, f"{self.warehouse}/{name}")
        return self._tables[name]

    def add(self, name: str, uri: str) -> None:
        """Name a table outside of the warehouse: it is then found by name, like tables inside."""
        self._tables[name] = Table(self, uri)

    def settings(self, values: Mapping[str, str]) -> AbstractContextManager[None]:
        """Hold settings of the session while the block runs, which may write."""
        write_times_plainly(self.spark)
        return session_settings(self.spark, values)
