"""The change data feed of a Delta table: each version's added rows, and the rows taken back (docs/rules.md, rule 322).

Changes of rows are records: each has an offset, which orders the changes of a key (rule 308).
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, ClassVar, NoReturn

import pyarrow as pa

from sessionlake.errors import JobError, SessionlakeError, SourceError
from sessionlake.sources.base import Offsets, limits_of
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.tables import SignedDecoder
from sessionlake.sources.delta import DeltaSource
from sessionlake.sources.record_columns import (
    CHANGE_PLACES,
    CHANGE_TYPE,
    COMMIT_VERSION,
    FEED_COLUMNS,
    OFFSET,
    PARTITION,
)
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.changelog import SIGN
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def with_places(rows: "DataFrame", version: "Column") -> "DataFrame":
    """Return rows with SIGN, and their places in the order of changes; `version` is the whole number of a row's change.

    Within a version, added rows come after rows taken back.
    """
    offset = version.cast("bigint") * 2 + F.when(F.col(SIGN) > 0, F.lit(1)).otherwise(F.lit(0))
    return rows.withColumns({OFFSET: offset, PARTITION: F.lit(0).cast("bigint")})


_ADDED = ("insert", "update_postimage")
_ENABLED = "delta.enableChangeDataFeed"
_OTHER_SCHEMA = (
    "DELTA_SCHEMA_CHANGED",
    "DELTA_STREAMING_SCHEMA_MISMATCH_ON_RESTART",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE",
    "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE",
)
_NOT_RECORDED = ("DELTA_MISSING_CHANGE_DATA", "DELTA_CHANGE_TABLE_FEED_DISABLED")


class ChangeFeedSource(DeltaSource):
    """See `Source` for the methods."""

    name: ClassVar[str] = "change_feed"

    @property
    def _meta(self) -> Mapping[str, pa.DataType]:
        return {**FEED_COLUMNS, **(CHANGE_PLACES if self._config.entry.deletes else {})}

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return column types; SourceError if a row would be taken back with another value, or a column has a reserved name."""
        source = self._config.source
        own = {SIGN, *(CHANGE_PLACES if self._config.entry.deletes else ())}
        if (named := next((name for name in self._schema().names if name in own), None)) is not None:
            raise SourceError(
                f"{source.place_at}: {source.path!r} has a column {named!r}, which is a name of sessionlake's own; rename it there"
            )
        if self._config.entry.subtracts and (other := next((n for n in needed if n in FEED_COLUMNS), None)) is not None:
            raise SourceError(
                f"{source.AT}.kind: column {other!r} is of a change, and a row is taken back by another change than the one that added it; "
                "read a column of the table in its place"
            )
        return super().types(needed, identity)

    def check(self) -> None:
        """Raise SourceError if the table records no changes."""
        source = self._config.source
        self._schema()  # the error for a table that is not there is a plainer one
        if self._properties().get(_ENABLED, "false").lower() != "true":
            raise SourceError(
                f"{source.place_at}: {source.path!r} records no changes; switch its change data feed on: "
                f"alter table delta.{SPARK.named(source.path)} set tblproperties ({_ENABLED} = true)"
            )

    def _properties(self) -> Mapping[str, str]:
        detail = self._spark.sql(f"describe detail delta.{SPARK.named(self._config.source.path)}").head()
        return {} if detail is None else detail["properties"]

    def explained(self, told: str) -> SessionlakeError | None:
        """Return the error for changes that are gone, or were not recorded."""
        source = self._config.source
        if any(sign in told for sign in _NOT_RECORDED):
            return SourceError(
                f"{source.place_at}: {source.path!r} has versions whose changes were not recorded; leave {_ENABLED} on, "
                "and read the whole table again with `sessionlake rebuild`"
            )
        if any(sign in told for sign in _OTHER_SCHEMA):
            return SourceError(
                f"{source.place_at}: {source.path!r} has versions of other columns than it has now, whose changes Delta does not read "
                "together (RESTORE to a version before a column came, a column that was renamed or dropped); read the whole table again with `sessionlake rebuild`"
            )
        return super().explained(told)

    def decoder(self, columns: EventColumns) -> SignedDecoder:
        """Return the decoder, which takes the rows with their signs."""
        return SignedDecoder(columns, self._config.source.place)

    def stream(self, columns: EventColumns, *, everything_at_once: bool = False) -> "DataFrame":
        """Return the changes of versions, each version whole; at first all existing rows."""
        self._check_types(columns)
        limits = limits_of(self._config.source, everything_at_once=everything_at_once)
        reader = self._spark.readStream.format("delta").option("readChangeFeed", "true").options(**limits)
        rows = reader.load(self._config.source.path)
        signed = rows.withColumn(SIGN, F.when(F.col(CHANGE_TYPE).isin(*_ADDED), F.lit(1)).otherwise(F.lit(-1)))
        placed = with_places(signed, F.col(COMMIT_VERSION)) if self._config.entry.deletes else signed
        return self._needed(placed, columns, SIGN)

    def ranked(self, tables: Tables) -> None:
        """Return None: a row has its change's number."""
        del tables

    def replay(self, tables: Tables, columns: EventColumns, offsets: Offsets, needed: Collection[int]) -> NoReturn:
        """Raise JobError: rows that were taken back since would be read as if they were there."""
        del tables, columns, offsets, needed
        raise JobError(f"{self._config.source.AT}.kind: 'change_feed' can't be read again")
