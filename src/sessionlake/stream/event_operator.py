"""The common part of operators over event inputs: a batch's rows are decoded by input, and each part goes to the method meant for it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Counted, Split
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.ingest import CORRECTIONS, EventSpec, by_input, naming_rows
from sessionlake.stream.whole import whole_rows


class EventOperator(ABC):
    """The part of an `engine.operator.Operator`, see there for the methods, that all operators over events have."""

    @abstractmethod
    def events(self, name: str) -> EventSpec:
        """Return the settings of an event input."""

    @abstractmethod
    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Turn decoded rows of an event input into pieces."""

    @abstractmethod
    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Turn rows of the table of corrections into pieces."""

    def columns(self, name: str) -> EventColumns:
        """Return the columns that are read of an input."""
        return self.events(name).decoder.columns

    def split_read(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Look up the rest of decoded rows of an event input, and turn them into pieces."""
        rows, counts = self.events(name).lookups.added(rows, context.pins)
        if counts:
            yield Counted(counts)
        yield from whole_rows(self.events(name), rows, context.clock_us)
        yield from self.split_rows(context, name, number, rows)

    def split(self, rows: pa.Table, context: BatchContext) -> Split:
        """Decode source rows by input, in the order of their source if that counts, and split them and the corrections."""
        yield from self.scheduled(context)
        for name, part in by_input(rows):
            if name == CORRECTIONS:
                yield from self.split_corrections(context, part)
                continue
            decoder = self.events(name).decoder
            events, sent = decoder.part(part)
            if sent is not None:
                yield from self.split_sent(context, sent)
            if decoder.columns.ordered:
                decoded = decoder.decode_in_order(events, context.files.get(name, {}), context.part)
            else:
                decoded = decoder.decode(events)
            for number, found in enumerate(decoded):
                yield from naming_rows(partial(self.split_read, context, name, number), found)

    def scheduled(self, context: BatchContext) -> Split:
        """Yield nothing."""
        del context
        yield from ()

    def with_states(self, packed: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
        """Return states, as stores and tables have them, with the aggregates' part of each changed."""
        return change(packed)

    def split_sent(self, context: BatchContext, table: pa.Table) -> Split:
        """Split corrections of the source like those of the table."""
        return self.split_corrections(context, table)
