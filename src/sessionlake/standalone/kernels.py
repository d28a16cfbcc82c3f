"""The operators as they run without Spark: one call turns rows of an input into pieces, one tells the state after a batch.

What a batch does is the operators' own `split` rules and `apply`, on a batch of one message or many.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sessionlake.engine.operator import BatchContext, Operator, Split
from sessionlake.operators.counts.mapper import split_events as split_counted
from sessionlake.operators.counts.operator import Counter
from sessionlake.operators.counts.spec import CountSpec
from sessionlake.operators.joins.mapper import split_messages
from sessionlake.operators.joins.operator import Joiner
from sessionlake.operators.joins.rules import JoinProgress, next_state
from sessionlake.operators.joins.spec import JoinSpec
from sessionlake.operators.sessions.mapper import split_events as split_sessions
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.windows.emission import Progress, next_progress
from sessionlake.operators.windows.mapper import split_events
from sessionlake.operators.windows.operator import Windower
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.rows import Rows
from sessionlake.store.api import OpenSegments
from sessionlake.store.messages import MessageStore
from sessionlake.store.segmented import SegmentedSessionStore
from sessionlake.store.series import SeriesStore
from sessionlake.store.slices import SliceStore
from sessionlake.stream.positions import chunk_of, counted
from sessionlake.stream.watermark import advanced, watermark_of

State = Mapping[str, Any]
_S = TypeVar("_S", SliceStore, SeriesStore, SegmentedSessionStore, MessageStore)
_ANYWHERE = Path()
"""The path of a store whose database is open already."""


class Kernel(Protocol[_S]):
    """One operator."""

    @property
    def operator(self) -> Operator[_S]:
        """The operator."""

    def columns(self, name: str) -> EventColumns:
        """Return the columns of an input that are read."""

    def opened(self, segments: OpenSegments) -> _S:
        """Open the store in a database."""

    def split(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return what becomes of rows of an input; `number` is their place among the rows of the batch's inputs."""

    def next_state(self, state: State, stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the state after a batch with these numbers."""

    def expired_us(self, state: State) -> int:
        """Return the time before which, strictly, messages are beyond retention."""


@dataclass(frozen=True)
class WindowKernel:
    """Windows by time; see `Kernel` for the methods."""

    spec: WindowSpec

    @property
    def operator(self) -> Windower:
        """The operator."""
        return Windower(self.spec)

    def columns(self, name: str) -> EventColumns:
        """Return the columns of the one input."""
        del name
        return self.spec.events.decoder.columns

    def opened(self, segments: OpenSegments) -> SliceStore:
        """Open the store of slices."""
        return self.operator.open_store(_ANYWHERE, segments)

    def split(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Merge events to parts of slices."""
        del name, number
        return split_events(self.spec, Progress.of(context.state), context.clock_us, rows)

    def next_state(self, state: State, stats: Mapping[str, int]) -> dict[str, Any]:
        """Return how far the windows are."""
        return self.spec.next_progress(Progress.of(state), stats).state()

    def expired_us(self, state: State) -> int:
        """Return where the retention ends."""
        return Progress.of(state).expired_us


@dataclass(frozen=True)
class CountKernel:
    """Windows and sessions by count; see `Kernel` for the methods."""

    spec: CountSpec

    @property
    def operator(self) -> Counter:
        """The operator."""
        return Counter(self.spec)

    def columns(self, name: str) -> EventColumns:
        """Return the columns of the one input."""
        del name
        return self.spec.events.decoder.columns

    def opened(self, segments: OpenSegments) -> SeriesStore:
        """Open the store of series."""
        return self.operator.open_store(_ANYWHERE, segments)

    def split(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return the messages and what numbers them."""
        del name
        return split_counted(self.spec, context, chunk_of(context, number), rows)

    def next_state(self, state: State, stats: Mapping[str, int]) -> dict[str, Any]:
        """Return how far the windows are, and how many messages each partition had."""
        spec = self.spec
        after = next_progress(spec.emit, spec.retention_us, spec.retention_us, Progress.of(state), stats)
        return {**after.state(), **counted(state, stats)}

    def expired_us(self, state: State) -> int:
        """Return where the retention ends."""
        return Progress.of(state).expired_us


@dataclass(frozen=True)
class SessionKernel:
    """Sessions by time; see `Kernel` for the methods."""

    spec: SessionizerSpec

    @property
    def operator(self) -> Sessionizer:
        """The operator."""
        return Sessionizer(self.spec)

    def columns(self, name: str) -> EventColumns:
        """Return the columns of the one input."""
        del name
        return self.spec.columns

    def opened(self, segments: OpenSegments) -> SegmentedSessionStore:
        """Open the store of sessions."""
        return self.operator.open_store(_ANYWHERE, segments)

    def split(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Merge events to parts of sessions."""
        del name, number
        return split_sessions(self.spec, self.operator.bounds(context), context.clock_us, rows)

    def next_state(self, state: State, stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the watermark."""
        return advanced(state, stats)

    def expired_us(self, state: State) -> int:
        """Return where the retention ends."""
        return self.spec.windows.bounds(watermark_of(state)).expired_us


@dataclass(frozen=True)
class JoinKernel:
    """Joins; see `Kernel` for the methods."""

    spec: JoinSpec

    @property
    def operator(self) -> Joiner:
        """The operator."""
        return Joiner(self.spec)

    def columns(self, name: str) -> EventColumns:
        """Return the columns of a side."""
        return self.spec.side(name).events.decoder.columns

    def opened(self, segments: OpenSegments) -> MessageStore:
        """Open the store of messages, which are asked for by time, too."""
        store = self.operator.open_store(_ANYWHERE, segments)
        store.index()
        return store

    def split(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return the messages of a side and what numbers them."""
        return split_messages(self.spec, JoinProgress.of(context.state), context, name, number, rows)

    def next_state(self, state: State, stats: Mapping[str, int]) -> dict[str, Any]:
        """Return how far both sides are."""
        return next_state(self.spec, state, stats)

    def expired_us(self, state: State) -> int:
        """Return where the retention ends."""
        return JoinProgress.of(state).at.expired_us
