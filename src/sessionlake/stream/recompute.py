"""The capability of an operator to compute its rows again from the events; the job `backfill` asks for it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from sessionlake.aggregates import Aggregate, Events
from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.config.load import Config
from sessionlake.engine.operator import Inputs, Operator
from sessionlake.sources.decoding.decoded import wrong_column
from sessionlake.sources.decoding.rows import Rows
from sessionlake.sources.decoding.whole_rows import are_whole
from sessionlake.sources.exploded import whole_decoder
from sessionlake.stream.comparison import Difference
from sessionlake.stream.ingest import COLUMNS, EventSpec
from sessionlake.stream.input_log import BatchInputs
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.tables import Tables

LATE, RESTATE = "late", "restate"
"""Kinds of wire rows: late events (Partials and INCLUDED), and restated partials."""
STORED, REMOVED = "stored", "removed"
"""Kinds of wire rows: the stored rows, and the rows that were removed on purpose."""
INCLUDED = "included"
"""The column of late events that says whether the run takes them in."""

Piece = tuple[int, str, Partials]
"""A batch, a kind of wire rows, and partials of that kind which the batch brought. They go on as `Partials.to_table` has
them, the column revision holding the batch."""
Pieces = Callable[[pa.Table], Iterator[Piece]]
"""Returns the pieces of rows of the archive or of a source; pickled to the workers."""


def read_again(events: EventSpec, table: pa.Table, inputs: Callable[[int], BatchInputs]) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of past batches, each with its batch and all that the batch looked up; `inputs` returns a batch's inputs.

    They are rows of the source, or whole rows of the archive.
    """
    # A row's error names its first wrong column: columns that only `where` reads now come last, so that they hide no column that the batch read.
    read = events.decoder.columns
    read = replace(read, asked=(), compared=(*read.compared, *read.asked))
    decoder = replace(cast("Any", events.decoder), columns=read)
    if are_whole(table):
        decoder = whole_decoder(read, decoder)
    for batch_id, rows in decoder.decode_again(table):
        batch = inputs(batch_id)
        yield batch_id, events.lookups.added(_as_then(events, batch, rows), batch.pins)[0]


def _as_then(events: EventSpec, batch: BatchInputs, rows: Rows) -> Rows:
    """Return rows of a batch that are not refused for a column which the batch did not read: there the value is null."""
    columns = events.columns
    asked = events.shape.under(batch.settings.get("where"), batch.settings.get(COLUMNS), columns).asked
    own = {columns.key, *columns.further_keys, columns.time, columns.id, *columns.further_ids}
    new = {*columns.inputs, *columns.asked} - events.read_at(batch.batch_id) - own
    new -= {*asked, *columns.also, *columns.compared}
    if rows.error is None or not new:
        return rows
    wrong = reduce(pc.or_, (pc.starts_with(rows.error, wrong_column(name)) for name in sorted(new)))
    told = pc.if_else(pc.fill_null(wrong, fill_value=False), pa.scalar(None, pa.string()), rows.error)
    return replace(rows, error=told)


@dataclass(frozen=True)
class Window:
    """Closed interval of event times, microseconds, that is read."""

    low: int
    high: int

    def meets(self, start: Ints, end: Ints) -> Bools:
        """Say which closed intervals have a time in common with the window."""
        in_range: Bools = (end >= self.low) & (start <= self.high)
        return in_range


@dataclass(frozen=True)
class Basis:
    """The tables and batches that rows are computed from, as of the pinned batch."""

    tables: Tables
    config: Config
    inputs: list[BatchInputs]
    from_us: int
    to_us: int
    """The range that is computed again: from inclusive, to exclusive, microseconds."""
    pinned: Mapping[str, Any]
    applied: DataFrame
    """The corrections that took effect, with the batch that took them."""
    forgotten: dict[str, int]
    """SHA-256 of keys that were erased, and the last batch whose events are to stay out."""


class Recompute(Protocol):
    """A run's computation, made on the driver by the operator's kind and the basis. Its functions are pickled to the workers."""

    counts: ClassVar[Sequence[str]]
    """The numbers of `Difference.stats` that the run reports."""
    right: ClassVar[str]
    """The note of a run that finds no difference."""
    operator: Operator[Any]
    """The workers' half."""
    aggregates: tuple[Aggregate, ...]
    events: EventSpec
    schema: pa.Schema
    """That of the corrections."""

    def __init__(self, kind: Any, basis: Basis) -> None: ...

    @classmethod
    def earliest(cls, config: Config, tables: Tables, last: BatchCommit, from_us: int) -> int:
        """Return the time, not before `from_us`, from which on a range that begins there can be computed."""

    def first(self) -> tuple[Window, int]:
        """Return the times whose events are to be read, and how many rows are stored around."""

    def wider(self, window: Window, step: int, *, low: bool, high: bool) -> Window:
        """Return more times, if groups may go on before or after the given times."""

    def pieces(self, needed: Sequence[BatchInputs]) -> tuple[Pieces, Pieces]:
        """Return how rows that these batches read become partials: of the archive, and of the source."""

    def lifted(self) -> Callable[[Events], Partials]:
        """Return the function that makes a partial of each single event, at its place."""

    def restated(self) -> Callable[[Partials, pa.Array | None], Partials]:
        """Return the function that gives restated partials their place; corrections may say until when each is open, otherwise None."""

    def late(self, late: DataFrame) -> DataFrame:
        """Return the needed late events, which have the column INCLUDED."""

    def others(self, window: Window) -> Iterator[tuple[str, DataFrame]]:
        """Yield the further rows of the comparison by kind: stored rows, and rows removed on purpose."""

    def compare(self, window: Window) -> Callable[[Inputs], Difference]:
        """Return the comparison of a bucket of keys."""
