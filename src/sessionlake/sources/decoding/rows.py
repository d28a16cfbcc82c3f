"""What every source gives: rows of events, whatever they were before, and the way back to what they came from."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sessionlake.columnar.arrays import Ints
from sessionlake.errors import PipelineStateError
from sessionlake.sources.columns import EventColumns

Texts = Callable[[Ints], pa.Array]
BATCH = "batch_id"
"""The column that says, of rows that are read again, which batch read them before."""


@dataclass(frozen=True)
class Origin:
    """Where rows that follow each other stand in the order of their source.

    A source has one or several partitions, each with an order of its own. Of two stretches of rows of a partition, the one
    with the lower `order` comes first, whichever tasks read them, and whether the batch is run again with other tasks.
    """

    partition: int
    """Number of the partition: that of a topic's; 0 in sources that have one only."""
    order: tuple[int, int, int]


@dataclass(frozen=True)
class Rows:
    """Events as a source gives them; `raw` and `source` fetch text and position of some rows only."""

    table: pa.Table
    """The needed columns in their pinned types; null where a value is missing or wrong."""
    error: pa.Array | None
    """Why a row is no event, null for good ones; None where all are good."""
    raw: Texts
    source: Texts
    origin: Origin | None = None
    """Where the rows are in the source's order: they are in it, and no other row lies between two of them but refused ones.
    None where nobody asked for it."""


class Decoder(Protocol):
    """The half of a source that works in the workers: from its stream's rows to rows of events. Pickled to them."""

    @property
    def columns(self) -> EventColumns:
        """The columns that are decoded, and their types."""

    def part(self, table: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Part what is decoded from what the source sends as corrections: rows of the table corrections, None for none."""

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Decode rows of the stream."""

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Decode rows of the stream, with their origins; `columns.ordered` is set, so that the stream has what that takes.

        `files` are the ranks of the batch's files (`BatchContext.files`), `part` says which of its task's tables it is.
        """

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Decode rows of `Source.replay`, and say which batch had read them; their texts are not asked for."""


def rank_of(files: Mapping[str, int], name: str) -> int:
    """Return a file's rank among a batch's; PipelineStateError where it is none of them."""
    if name not in files:
        raise PipelineStateError(
            f"source: file {name!r} is not among those that the batch is planned to read, so that its rows can't be numbered; "
            "put the checkpoint back as of the changelog, or build the tables anew with `sessionlake rebuild`"
        )
    return files[name]


def no_text(at: Ints) -> pa.Array:
    """Stand for text or place of rows, where nobody asks for them."""
    return pa.nulls(len(at), pa.string())
