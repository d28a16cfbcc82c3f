"""Rows of events from any source, each row's origin, and the text that dead letters and late events keep: cut if it is long."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints
from sessionlake.errors import PipelineStateError
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.whole import Whole

MAX_RAW_BYTES = 64 << 10
"""The number of kept bytes of a longer row."""
_CUT = re.compile(r"\.\.\. \[cut: \d+ bytes in all, sha256 [0-9a-f]{64}\]\Z")


def raw_text(content: bytes) -> str:
    """Return a row as text: bytes outside of UTF-8 become replacement characters. A long row has its begin, length and hash."""
    if len(content) <= MAX_RAW_BYTES:
        return content.decode(errors="replace")
    return cut_text(content, len(content), hashlib.sha256(content).hexdigest())


def cut_text(head: bytes, length: int, sha256: str) -> str:
    """Return the text of a row of `length` bytes that begins with `head`."""
    return f"{head[:MAX_RAW_BYTES].decode(errors='replace')}... [cut: {length} bytes in all, sha256 {sha256}]"


def is_cut(raw: str) -> bool:
    """Say whether a text is only its row's begin, and so can't be read as a row again."""
    return _CUT.search(raw[-120:]) is not None


Texts = Callable[[Ints], pa.Array]
BATCH = "batch_id"
"""The column with the earlier batch of rows that are read again."""


@dataclass(frozen=True)
class Origin:
    """The place of a run of consecutive rows in their source's order.

    A source has one or several partitions, each with its own order. Of two runs in a partition, the run with the lower
    `order` comes first. This does not depend on the tasks that read them, or on a rerun of the batch with other tasks.
    """

    partition: int
    """The topic partition's number; 0 for sources with a single partition."""
    order: tuple[int, int, int]


@dataclass(frozen=True)
class Rows:
    """Events as a source gives them; `raw` and `source` fetch text and position of some rows only."""

    table: pa.Table
    """The needed columns in their pinned types; null if a value is missing or wrong."""
    error: pa.Array | None
    """Why a row is no event, null for good ones; None if all are good."""
    raw: Texts
    source: Texts
    origin: Origin | None = None
    """The rows' place in the source's order; None if it was not requested. The rows are in that order, and only refused rows lie
    between them."""
    places: Ints | None = None
    """The number of each row among all rows that its task read together, if rows between were taken out."""
    whole: Whole | None = None
    """Fetches some rows with all columns of the source; None if they were not read (`EventColumns.whole`)."""
    sign: Ints | None = None
    """1 for an added row, -1 for a row taken back; None if all are added."""
    ignored: int = 0
    """The number of records, besides these rows, that are no rows."""

    def numbers(self, at: Ints) -> Ints:
        """Return numbers that order accepted rows, which are at these places: from 0 on without a gap, but for rows that were taken out."""
        return np.arange(len(at)) if self.places is None else self.places[at]


class Decoder(Protocol):
    """The workers' half of a source: from its stream's rows to rows of events. Pickled to the workers."""

    @property
    def columns(self) -> EventColumns:
        """The columns that are decoded, and their types."""

    def part(self, table: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Return the decoded events, and the source's corrections as rows of the table corrections, None if there are none."""

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Decode rows of the stream."""

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Decode rows of the stream, with their origins. `columns.ordered` must be set: then the stream has the columns for it.

        `files` are the ranks of the batch's files (`BatchContext.files`), `part` says which of its task's tables it is.
        """

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Decode rows of `Source.replay`, and say which batch had read them; their texts are not asked for."""


def rank_of(files: Mapping[str, int], name: str) -> int:
    """Return a file's rank among a batch's; PipelineStateError if it is none of them."""
    if name not in files:
        raise PipelineStateError(
            f"source: file {name!r} is not in the plan of the batch, so its rows can't be numbered; "
            "put the checkpoint back as of the changelog, or rebuild the tables with `sessionlake rebuild`"
        )
    return files[name]


def no_text(at: Ints) -> pa.Array:
    """Stand for text or place of rows, if nobody asks for them."""
    return pa.nulls(len(at), pa.string())


class TypedSource(Protocol):
    """An operator's view of the source: its columns, and their decoding. It needs no Spark."""

    def columns(self) -> list[str]:
        """Return all columns of the source."""

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the types of the needed columns; an error if one is missing.

        The values of the columns in `identity` identify events: as keys, as ids, or in comparisons.
        """

    def decoder(self, columns: EventColumns) -> Decoder:
        """Return the workers' half."""
