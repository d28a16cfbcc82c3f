"""The decoder by which others read an operator's stores. The operator's entry names it (`config.operators`)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pyarrow as pa

from sessionlake.columnar.column_types import stored_type
from sessionlake.config.load import Config
from sessionlake.config.operators import named
from sessionlake.errors import ConfigError
from sessionlake.serve.encoded import Times
from sessionlake.serve.result_rows import ALL, Packed, ResultRow, Span
from sessionlake.warehouse.batch_commit import BatchCommit

if TYPE_CHECKING:
    from sessionlake.serve.replica import View

StoreType = Literal["session_store", "key_value_store", "window_store"]


class Decoder(ABC):
    """Makes rows of the bytes in an operator's stores, as of one batch."""

    store_type: ClassVar[StoreType]
    """The method of `View` that gives the rows as a store; the three are those of Kafka Streams' `QueryableStoreTypes`."""
    complete_from_us: int | None = None
    """Rows that ended before it may lie in the tables only; None if stores have all."""

    @abstractmethod
    def __init__(self, config: Config, commit: BatchCommit) -> None:
        """Make the decoder of a pipeline as of a batch."""

    @classmethod
    def of(cls, config: Config, commit: BatchCommit) -> Self:
        """Return the decoder of a pipeline as of a batch."""
        return cls(config, commit)

    @abstractmethod
    def open_store(self, view: "View") -> Any:
        """Return the rows of a view as a store of `store_type`."""

    @abstractmethod
    def has(self, segment: int) -> bool:
        """Say whether rows lie in a segment."""

    @abstractmethod
    def json_values(self, found: Sequence[ResultRow], times: Times) -> list[dict[str, Any]]:
        """Return rows as dictionaries by column, in the columns' order, with values in the form of answers."""


class RowDecoder(Decoder):
    """A decoder of stores whose values are whole rows: the query server can read them instead of the tables.

    Rows are decoded in two ways. Made of the other form, columns of 200,000 rows would take 30 times as long, and the JSON of one
    row as well.
    """

    @abstractmethod
    def rows(self, packed: Packed, include: Collection[str] = ALL) -> pa.Table:
        """Return rows as columns, by key, then by time; keys come ascending.

        `include` names the rows to show that live views leave out, of ALL.
        """

    @abstractmethod
    def size(self, value: bytes) -> int:
        """Return the number of rows in a stored value."""

    @abstractmethod
    def result_rows(self, packed: Packed, include: Collection[str] = ALL) -> list[ResultRow]:
        """Return the same rows in the same order, their values packed: for few rows this takes less than columns."""

    @abstractmethod
    def page(self, packed: Packed, include: Collection[str], span: Span) -> tuple[list[ResultRow], int, int | None]:
        """Return rows of one key, the number of rows looked at, and the start of the last of these if there are more.

        Only rows that are returned are decoded. Stored values come in the order of their segments.
        """


class OpenRowDecoder(RowDecoder):
    """A decoder of rows with a start that stay open, and that live views may leave out: `include` of a question shows them."""

    @abstractmethod
    def longest_open(self, packed: Packed, limit: int) -> tuple[list[ResultRow], bool]:
        """Return the rows that events can still lengthen, the longest first, and whether there was any at all.

        Those in quarantine are left out. Of two that are equally long the one that began first comes first.
        """


def has_decoder(config: Config, kind: type) -> bool:
    """Say whether a pipeline's operator has a decoder of this kind, of stores that hold what the live view shows."""
    place = config.entry.serving
    return place is not None and config.section.facts.stores_are_rows and issubclass(named(place), kind)


def decoder_of(config: Config, commit: BatchCommit) -> Decoder:
    """Return the decoder of a pipeline as of a batch; ConfigError if the operator has none."""
    place = config.entry.serving
    if place is None:
        raise ConfigError(
            f"{config.operator}: stores of {config.entry.rows.computed} can't be read; use `sessionlake sql`"
        )
    decoder: type[Decoder] = named(place)
    return decoder.of(config, commit)


def event_types(commit: BatchCommit) -> dict[str, pa.DataType]:
    """Return the types of the events' columns as of a batch; computed ones hide those of the source."""
    settings = commit.settings
    return {name: stored_type(text) for name, text in {**settings.types, **settings.computed}.items()}


def json_rows(columns: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Return rows as dictionaries by column, from the values of each column."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def key_texts(packed: Packed) -> pa.Array:
    """Return the keys as text."""
    return pa.array(packed.keys, pa.binary()).cast(pa.string())
