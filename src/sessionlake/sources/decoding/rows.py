"""What every source gives: rows of events, whatever they were before, and the way back to what they came from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sessionlake.columnar.arrays import Ints
from sessionlake.sources.columns import EventColumns

Texts = Callable[[Ints], pa.Array]
BATCH = "batch_id"
"""The column that says, of rows that are read again, which batch read them before."""


@dataclass(frozen=True)
class Rows:
    """Events as a source gives them; `raw` and `source` fetch text and position of some rows only."""

    table: pa.Table
    """The needed columns in their pinned types; null where a value is missing or wrong."""
    error: pa.Array | None
    """Why a row is no event, null for good ones; None where all are good."""
    raw: Texts
    source: Texts


class Decoder(Protocol):
    """The half of a source that works in the workers: from its stream's rows to rows of events. Pickled to them."""

    @property
    def columns(self) -> EventColumns:
        """The columns that are decoded, and their types."""

    def part(self, table: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Part what is decoded from what the source sends as corrections: rows of the table corrections, None for none."""

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Decode rows of the stream."""

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Decode rows of `Source.replay`, and say which batch had read them; their texts are not asked for."""


def no_text(at: Ints) -> pa.Array:
    """Stand for text or place of rows, where nobody asks for them."""
    return pa.nulls(len(at), pa.string())
