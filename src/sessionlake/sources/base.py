"""The interface of a source of events: the driver's half, and the limits of a batch. `decoding.rows.Decoder` is the workers' half."""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from sessionlake.config.source import SourceSection
from sessionlake.errors import SessionlakeError
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.rows import Decoder
from sessionlake.warehouse.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_RECORDS, SMALL_PARTITIONS, SMALL_BYTES = 5_000, 16, 512 << 10
"""Up to this many records of this many partitions, or bytes of files, a batch is small (`Source.is_small`).

On two cores, four shards and batches of ten events one task takes 0.7 of the CPU of two stages; of 10,000 events 0.8. With more
cores two stages are sooner done with so many events, hence the lower bound."""
_ALL_FILES = 1 << 30


def limits_of(source: SourceSection, *, everything_at_once: bool) -> dict[str, int]:
    """Return the options of a source section, or the options for everything in a single batch."""
    if everything_at_once:
        return {"maxFilesPerTrigger": _ALL_FILES}
    limits = {"maxFilesPerTrigger": source.files_per_batch, "maxBytesPerTrigger": source.bytes_per_batch}
    return {name: limit for name, limit in limits.items() if limit is not None}


Offsets = Sequence[tuple[int, Mapping[str, Any] | None]]
"""For each batch, in order: the batch, and the position in the source up to which it read, as Spark logs it; None for the start."""


def same(name: str) -> str:
    """Return the name unchanged: if a source's rows are a pipeline's only events, they keep their columns' names."""
    return name


class PlannedInput(Protocol):
    """The checkpoint's record of the input of planned batches."""

    def rows(self, rows: "DataFrame", batch_id: int, offsets: str | None) -> "DataFrame":
        """Return a batch's rows, with the rows that Spark leaves out; `offsets` is the text of the batch's offset file."""

    def gone(self, batch_id: int) -> list[str]:
        """Return the names of a batch's planned input that is gone, for example deleted files."""

    def reached(self, batch_id: int) -> int:
        """Return the last entry of the source's log up to a batch; -1 if there is none."""


class RankedInput(Protocol):
    """The order of the files that batches read, as the checkpoint and the source's own log have it."""

    def ranks(self, batch_id: int) -> Mapping[str, int]:
        """Return a planned batch's files as its rows name them, each with its rank in the source's order."""


class Versioned(Protocol):
    """A source that batches read by its own versions: Spark's positions only say that there is something new."""

    def newest(self, last: str | None) -> str:
        """Return the newest version; `last` is the previous batch's version, None before the first."""

    def rows(self, columns: EventColumns, before: str | None, version: str) -> "DataFrame":
        """Return a batch's rows, by the stream's column names: the difference of a version from the one `before` it."""


class Source(Protocol):
    """A source of a pipeline's events. A new kind is a module with such a class, its decoder, and an entry in `registry`."""

    name: ClassVar[str]
    """As `source.kind` has it."""
    one_row_a_file: ClassVar[bool]
    """Whether rows of its stream are files, few and decoded by the workers, and not events."""

    def check(self) -> None:
        """Raise SourceError if the source can't be read at all; warn about settings that are probably mistakes."""

    def watch(self) -> None:
        """Warn about new input that can't be read. The stream calls it about every second."""

    def grew(self, told: str) -> bool:
        """Say, by the text of a query's failure, whether only the source's columns have changed, so that a new query may go on."""

    def explained(self, told: str) -> SessionlakeError | None:
        """Return the user's error for a query's failure, by its text, if this source is its cause; else None."""

    def columns(self) -> list[str]:
        """Return all columns of the source."""

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the types of the needed columns as the source has them now; SourceError if one is missing.

        An inferred type of a column in `identity` keeps different values unequal (`infer_types`).
        """

    def decoder(self, columns: EventColumns) -> Decoder:
        """Return the workers' half."""

    def stream(self, columns: EventColumns, *, everything_at_once: bool = False) -> "DataFrame":
        """Return the source as a stream, its batches bounded by the config's limits or by nothing."""

    def planned(self, tables: Tables, column: Callable[[str], str] = same) -> PlannedInput | None:
        """Return the checkpoint's record of planned input; None if the source adds no rows to Spark's.

        `column` gives the name, among a batch's rows, of a column of the source's stream.
        """

    def is_small(self, before: str, planned: str) -> bool:
        """Say whether a batch reads so little that sharing it out among tasks takes longer than the work; False if nobody knows.

        `before` and `planned` are the positions before and after the batch, as Spark's log of offsets has them. The rows of the
        batch that Spark leaves out were asked for before (`planned`).
        """

    def versioned(self) -> Versioned | None:
        """Return how batches read the source by versions; None if Spark's positions say all."""

    def ranked(self, tables: Tables) -> RankedInput | None:
        """Return the order of planned files; None if each row itself has its place in the order."""

    def replay(
        self, tables: Tables, columns: EventColumns, offsets: Offsets, needed: Collection[int]
    ) -> "DataFrame | None":
        """Return the rows that the needed batches read, with a column BATCH, for `Decoder.decode_again`; None for none.

        Raises JobError if the source can't be read again, SourceError if needed rows are gone.
        """
