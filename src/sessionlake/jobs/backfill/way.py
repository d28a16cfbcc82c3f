"""What differs from operator to operator when its rows are computed from the events again (`sessions.py`, `windows.py`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from sessionlake.aggregates import Aggregate, Events
from sessionlake.aggregates.partials import Partials
from sessionlake.config.load import Config
from sessionlake.engine.operator import Inputs
from sessionlake.jobs.backfill.events import Pieces, Window
from sessionlake.jobs.backfill.ledger import applied_corrections, taken_corrections
from sessionlake.jobs.late.spans import LateRun, Span
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.input_log import BatchInputs
from sessionlake.warehouse import schemas
from sessionlake.warehouse.schemas import TIME
from sessionlake.warehouse.tables import Tables


def correction_schema(*, until: bool = False) -> pa.Schema:
    """Return what `replace` corrections say; `group_start` and key are theirs alone in a run. `until`: as `schemas.corrections`."""
    remove, put = (schemas.corrections(until=until).field(name).type for name in ("remove", "put"))
    return pa.schema(
        [
            ("session_key", pa.string()),
            ("group_start", pa.int64()),
            ("session_start", TIME),
            ("revision", pa.int64()),
            ("remove", remove),
            ("put", put),
        ]
    )


@dataclass(frozen=True)
class Basis:
    """What is computed from, as of the pinned batch."""

    tables: Tables
    config: Config
    inputs: list[BatchInputs]
    runs: list[LateRun]
    asked: Span
    pinned: Mapping[str, Any]
    forgotten: dict[str, int]
    """SHA-256 of keys that were erased, and the last batch whose events are to stay out."""

    @cached_property
    def taken(self) -> DataFrame:
        """What became of the corrections that the batches took, see `taken_corrections`."""
        return taken_corrections(self.tables, self.inputs)

    @cached_property
    def applied(self) -> DataFrame:
        """The corrections that took effect, with the batch that took them."""
        return applied_corrections(self.tables, self.taken, self.inputs[-1].batch_id)


@dataclass(frozen=True)
class Difference:
    """What the stored rows of a bucket lack to be right."""

    corrections: pa.Table
    """As `correction_schema` says: one row for each group of rows that hang together."""
    stats: dict[str, int]
    """`open_low` and `open_high` say how many groups may go on before and after the times that were read."""


class Way(Protocol):
    """An operator's way; made on the driver for one run. What its methods return as functions is pickled to the workers."""

    counts: ClassVar[Sequence[str]]
    """The numbers of `Difference.stats` that the run reports."""
    right: ClassVar[str]
    """What is said where nothing differs."""
    aggregates: tuple[Aggregate, ...]
    events: EventSpec
    schema: pa.Schema
    """That of the corrections."""

    def first(self) -> tuple[Window, int]:
        """Return the times whose events are to be read, and how many rows are stored around."""

    def wider(self, window: Window, step: int, *, low: bool, high: bool) -> Window:
        """Return more times, where groups may go on before or after those."""

    def pieces(self, needed: Sequence[BatchInputs]) -> tuple[Pieces, Pieces]:
        """Return how rows that these batches read become partials: of the archive, and of the source."""

    def lifted(self) -> Callable[[Events], Partials]:
        """Return what makes a partial of each single event, at its place."""

    def restated(self) -> Callable[[Partials, pa.Array | None], Partials]:
        """Return what gives restated partials their place; where corrections say until when each is open, with that (or null)."""

    def late(self, late: DataFrame) -> DataFrame:
        """Return, of late events with a column `included`, those that are needed."""

    def others(self, window: Window) -> Iterator[tuple[str, DataFrame]]:
        """Yield, by the kind of the rows, what is stored, and what was removed on purpose."""

    def compare(self, window: Window) -> Callable[[Inputs], Difference]:
        """Return the comparison of one bucket of keys."""
