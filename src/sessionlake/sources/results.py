"""The results of another pipeline as a source: each batch reads how they differ between two batches of that pipeline.

Spark's stream of the changelog only says when there is something new: its rows are left out. Which batches are compared is in the
commits of the reader (`BatchCommit.pins`), so that a batch that is repeated reads the same.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn

import pyarrow as pa

from sessionlake.column_names import roots_of
from sessionlake.config.load import Config
from sessionlake.config.upstream import Upstream
from sessionlake.errors import AwaitedError, JobError, PipelineStateError, SessionlakeError, SourceError
from sessionlake.sources.base import Offsets, same
from sessionlake.sources.change_feed import with_places
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.tables import PART, SignedDecoder
from sessionlake.sources.delta import DeltaSource
from sessionlake.sources.record_columns import CHANGE_PLACES
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.changelog import SIGN, changelog_of
from sessionlake.warehouse.schemas import BATCH_MARKS
from sessionlake.warehouse.seen import Reader, Visible
from sessionlake.warehouse.streamed_files import are_gone
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.visible import CHANGED_IN, View, lost, section_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ResultsSource(DeltaSource):
    """See `Source` for the methods."""

    name: ClassVar[str] = "results"

    def __init__(self, spark: "SparkSession", config: Config, number: int = 0) -> None:
        super().__init__(spark, config, number)
        self._upstream = config.upstream[config.source.AT]

    def planned(self, tables: Tables, column: Callable[[str], str] = same) -> None:
        """Return None: a pipeline's results are trusted as their warehouse's writer is."""

    def decoder(self, columns: EventColumns) -> SignedDecoder:
        """Return the decoder, which takes the rows with their signs."""
        return SignedDecoder(columns, self._config.source.place)

    def stream(self, columns: EventColumns, *, everything_at_once: bool = False) -> "DataFrame":
        """Return no rows: a stream that has news whenever the other pipeline commits a batch. AwaitedError if that has no batches yet."""
        del everything_at_once
        self._check_types(columns)
        source, config, last = self._config.source, self._config, find_last_batch(self._tables)
        if last is None:
            raise AwaitedError.of(source.place_at, source.place)
        own = changelog_of(config).changes
        Reader(config.pipeline.name, config.directory, config.pipeline.warehouse, own, source.place_at).record(
            self._tables
        )
        reader = self._spark.readStream.format("delta").option("skipChangeCommits", "true")
        rows = reader.option("startingVersion", last.version).load(source.path).where(F.lit(False))
        rows = rows.withColumn(SIGN, F.lit(1))
        return self._in_order(with_places(rows, F.lit(0)) if _has_places(config) else rows, columns)

    def ranked(self, tables: Tables) -> None:
        """Return None: a difference's rows have their own order."""
        del tables

    def explained(self, told: str) -> SessionlakeError | None:
        """Return the error for rows as they were that are gone."""
        return lost(self._config.source.place_at, self._tables) if are_gone(told, self._upstream.warehouse) else None

    def replay(self, tables: Tables, columns: EventColumns, offsets: Offsets, needed: Collection[int]) -> NoReturn:
        """Raise JobError: the rows of a past batch are a difference of what the tables were then."""
        del tables, columns, offsets, needed
        source = self._config.source
        raise JobError(f"{source.place_at}: the results of {source.place!r} can't be read again as they were")

    def versioned(self) -> "Handover":
        """Return how batches read the differences."""
        return Handover(self._tables, self._upstream, self._config, self._in_order)

    @property
    def _meta(self) -> Mapping[str, pa.DataType]:
        return CHANGE_PLACES if _has_places(self._config) else {}

    @property
    def _tables(self) -> Tables:
        return Tables(self._spark, self._upstream.warehouse, self._upstream.changelog)

    def _in_order(self, rows: "DataFrame", columns: EventColumns) -> "DataFrame":
        """Return the columns that are read of rows, with their signs; if their order counts, with the part of the order that they are in."""
        return self._needed(rows, columns, SIGN, *([F.spark_partition_id().alias(PART)] if columns.ordered else []))

    def _schema(self) -> pa.Schema:
        source = self._config.source
        try:
            schema = super()._schema()
        except SourceError as error:
            raise AwaitedError.of(source.place_at, source.place) from error
        of = self._upstream.changelog
        unread = {*of.of_changes, *(mark.name for mark in BATCH_MARKS), *of.hidden}
        return pa.schema([field for field in schema if field.name not in unread])


def _has_places(config: Config) -> bool:
    """Say whether rows have a place in the order of changes: if one that is taken back deletes the row of its key."""
    return config.source.takes_back and config.entry.deletes


@dataclass(frozen=True)
class Handover:
    """The differences between batches of another pipeline, one for each batch of the reader; see `Versioned` for the methods."""

    tables: Tables
    upstream: Upstream
    config: Config
    typed: "Callable[[DataFrame, EventColumns], DataFrame]"
    """Returns the columns that are read of rows in their types, and their signs."""

    def newest(self, last: str | None) -> str:
        """Return what is seen as of the other pipeline's last batch; PipelineStateError if it is not the pipeline that was read before."""
        before = None if last is None else Visible.read(last)
        batch = find_last_batch(self.tables)
        if batch is None:
            raise self._other("has no batches any more")
        if before is not None:
            self._check(before)
        return Visible.of(batch, self.upstream.section, before).text()

    def rows(self, columns: EventColumns, before: str | None, version: str) -> "DataFrame":
        """Return the difference of two versions; of the first one all that is seen."""
        source = self.config.source
        section = section_at(self.tables, self.upstream.section, Visible.read(version))
        view = View(self.tables, section, final=source.rows == "final", read_at=source.place_at)
        seen = None if before is None else Visible.read(before)
        of = self.upstream.changelog
        order = (of.read_by, *of.identity) if columns.ordered else ()
        own = CHANGE_PLACES if _has_places(self.config) else ()
        read = [name for name in dict.fromkeys((*roots_of(columns.schema.names), *order)) if name not in own]
        found = view.signed(seen, Visible.read(version), read)
        placed = with_places(found, F.col(CHANGED_IN)) if own else found
        return self.typed(placed.orderBy(*order, SIGN) if order else placed, columns)

    def _check(self, before: Visible) -> None:
        if not before.is_in(self.tables):
            raise self._other(
                f"is no longer the pipeline whose batch {before.batch_id} was read: it was rebuilt or put back"
            )

    def _other(self, told: str) -> PipelineStateError:
        source = self.config.source
        return PipelineStateError(
            f"{source.place_at}: {source.place!r} {told}; put back what was read, or read all of it again with `sessionlake rebuild`"
        )
