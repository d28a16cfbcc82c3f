"""Windows and sessions of one stream, without Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import STATE_LAYOUT
from sessionlake.config.durations import MINUTE_US, parse_duration
from sessionlake.engine.operator import Aside, Piece
from sessionlake.errors import ConfigError, NotKeptError
from sessionlake.local.columns import Types, aggregated
from sessionlake.local.rows import Row, plain_rows
from sessionlake.operators.counts.definition import CountDefinition
from sessionlake.operators.counts.operator import CountedWindows
from sessionlake.operators.counts.spec import CountSpec
from sessionlake.operators.sessions.gap_by import parsed_gap, source_columns, typed_gap
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.operators.windows.definition import WindowDefinition
from sessionlake.operators.windows.operator import Windower
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.standalone.base import Chunk, Positions, Standalone
from sessionlake.standalone.emit import Emit
from sessionlake.standalone.outbox import Downstream
from sessionlake.standalone.retained_messages import MessageRetention, RetainedMessages
from sessionlake.standalone.windows import WindowQuery, windows_in
from sessionlake.stream.ingest import ARCHIVED, DEAD_LETTER, DROP, EVENTS, EventSpec
from sessionlake.stream.positions import PARTITION

Definition = WindowDefinition | CountDefinition | SessionWindows


class WindowedAggregator(Standalone[Windower | CountedWindows | Sessionizer]):
    """Windows by time or count, or sessions, over messages that are added one at a time or as tables.

    `aggregates` are as in the section [aggregates]: {"hottest": "max(celsius)"}. `key` names the column of the key, None for
    one window of all messages at a time; `time` that of the event time, in microseconds or, if `schema` says "timestamp",
    timestamps; None, by count and in `keep_messages` alone, for the clock's. `schema` = {"column": "long" | "double" |
    "string" | "boolean" | "timestamp" | "date"}; the first message fixes the types of other columns.

    Outputs are dicts with the columns of window_changelog, of sessions of session_changelog, times in microseconds. With
    `keep_messages` the messages themselves are kept for `get_messages`, with the columns that aggregates read and
    `columns`: by time True, for the retention; by count how many of the newest of each partition.

    A message that is more than `max_future_skew` (by default the size of a window, the grace of sessions, or their gap if no grace is written, a minute at least) ahead of
    the clock is refused, `too far in the future`: it would make all that come after it late. Another one may be given each
    time that the directory is opened.

    `batch` is how many messages `add_message` gathers to one batch (`Standalone`); it may be another one each time that the
    directory is opened. ConfigError for an invalid definition, or for one that is not the directory's.

    >>> from tempfile import TemporaryDirectory
    >>> from sessionlake import TumblingWindows
    >>> with TemporaryDirectory() as directory:
    ...     minutes, each = TumblingWindows.of("1 minute"), Emit(early="batch", late="batch")
    ...     with WindowedAggregator(directory, minutes, {"hottest": "max(celsius)"}, key="sensor", emit=each) as run:
    ...         run.add_message({"sensor": "a", "celsius": 21.5, "time_us": 10_000_000}, position=1)
    ...         run.add_message({"sensor": "a", "celsius": 23.0, "time_us": 50_000_000}, position=2)
    ...         [(row["window_start"], row["window_end"], row["hottest"]) for row in run.get_result()]
    [(0, 60000000, 21.5), (0, 60000000, 23.0)]
    """

    def __init__(
        self,
        directory: str | Path,
        definition: Definition,
        aggregates: Mapping[str, str],
        *,
        emit: Emit | None = None,
        key: str | None = None,
        time: str | None = "time_us",
        schema: Mapping[str, str] | None = None,
        beyond_retention: str = DEAD_LETTER,
        max_future_skew: str | None = None,
        downstream: Downstream | None = None,
        batch: int = 1,
        keep_messages: bool | int = False,
        columns: Sequence[str] = (),
    ) -> None:
        self._windows, self._texts, self._emit = definition, dict(aggregates), emit or Emit()
        self._key, self._time = key, time
        self._room, self._columns = _room(definition, keep_messages), tuple(columns)
        self._policies = _policies(definition, self._emit, time)
        asked = {
            "layout": STATE_LAYOUT,
            "windows": repr(definition),
            "aggregates": self._texts,
            "emit": asdict(self._emit),
            "key": key,
            "time": time,
            "keep_messages": keep_messages,
            "columns": list(columns),
        }
        if beyond_retention not in (DEAD_LETTER, DROP):
            raise ConfigError(f"beyond_retention: {beyond_retention!r} is unknown; write {DEAD_LETTER} or {DROP}")
        skew = None if max_future_skew is None else parse_duration(max_future_skew, "max_future_skew")
        self._judged = (beyond_retention, max(_skew_us(definition), MINUTE_US) if skew is None else skew)
        super().__init__(directory, lambda _: asked, schema, downstream, batch)

    def add_message(
        self, message: Row, *, position: int | None = None, partition: int = 0, clock_us: int | None = None
    ) -> None:
        """Add a message. One whose position is not above the last of its partition is a replay, and changes nothing.

        `clock_us` is the clock in microseconds, by default the system's; it never goes back. Of messages that are gathered
        to a batch the last clock is that of all. BackPressureError if downstream took not all outputs: those of earlier
        calls (the message is not taken), or of this one (it is).
        """
        self._add_one(EVENTS, message, position, partition, clock_us)

    def add_messages(
        self,
        table: pa.Table,
        *,
        positions: Positions | None = None,
        partitions: Positions | int = 0,
        clock_us: int | None = None,
    ) -> None:
        """Add the rows of a table as one batch, each with its position and its partition; else as `add_message`.

        ConfigError if a column is missing or of another type: then nothing is added.
        """
        self._add_table(EVENTS, table, positions, partitions, clock_us)

    def positions(self) -> dict[int, int]:
        """Return by partition the last position that is flushed. After a crash, add the messages after it."""
        return self._positions(EVENTS)

    def get_windows(self, start: int, end: int, key: str | None = None) -> list[dict[str, Any]]:
        """Return the windows that overlap [start, end] and are in the store, by start: of all keys (it is read whole) or of one.

        Bounds are microseconds, by count numbers, as in outputs. By time these are the windows of the retention; by count
        those that are not full. Aggregates are those of all that was added, sent or not.
        """
        self._require_settled()
        return plain_rows(windows_in(self._operator, self._store, self._stream.state, WindowQuery(start, end, key)))

    def get_messages(
        self, start: int, end: int, *, join_keys: Sequence[Any] | None = None, session_key: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the kept messages in [start, end], by place, of all keys or of `session_key`: key, time_us, position, columns.

        By time the range is of times; by count of positions, partition * 2^40 + the message's number in it, from 1. Late
        messages are among them. NotKeptError if none are kept; ConfigError for `join_keys`, which joins have.
        """
        self._require_settled()
        if join_keys is not None:
            raise ConfigError(f"join_keys: {join_keys!r} are of a JoinWindow; leave them out, or give session_key")
        if self._kept is None:
            raise NotKeptError("get_messages: no messages are kept; open a new directory with keep_messages=True")
        return self._kept.between(
            start, end, session_key, self._operator.expired_us(self._stream.state), self._retained_so_far
        )

    def _build(self, types: Mapping[str, Types]) -> Windower | CountedWindows | Sessionizer:
        given = {**types.get(EVENTS, {}), **self._declared}
        others = [name for name in given if name not in (self._key, self._time)]
        sql = parsed_gap(self._windows.gap_by) if isinstance(self._windows, SessionWindows) else None
        wanted = [*self._columns, *source_columns(sql)]
        aggregates, columns, shape = aggregated(
            self._texts, given, key=self._key, time=self._time, columns=wanted, others=others
        )
        ordered = replace(columns, ordered=True)
        events = EventSpec(TableDecoder(ordered, None), *self._judged, archive=self._room is not None, shape=shape)
        self._kept = None if self._room is None else RetainedMessages(self._room, events, self._segments.part(1))
        defined = self._windows
        if isinstance(defined, SessionWindows):
            return Sessionizer(SessionizerSpec(events, aggregates, defined, typed_gap(sql, columns.types)))
        if isinstance(defined, CountDefinition):
            return CountedWindows(
                CountSpec(events, aggregates, defined.windows, defined.numbered, self._policies, defined.retention_us)
            )
        times = (defined.grace_us, defined.retention_us, defined.retention_count)
        return Windower(WindowSpec(events, aggregates, defined.windows, self._policies, *times))

    def _keep(self, chunks: Sequence[Chunk], pieces: Sequence[Sequence[Piece]], before: Mapping[str, Any]) -> None:
        if self._kept is None:
            return
        kept, expired_us = self._retained_so_far, self._operator.expired_us(before)
        for chunk, some in zip(chunks, pieces, strict=False):
            for piece in some:
                if isinstance(piece, Aside) and piece.kind == ARCHIVED and len(piece.rows):
                    first = kept.get(chunk.partition, 0) + 1
                    numbers = first + np.arange(len(piece.rows))
                    kept[chunk.partition] = first - 1 + len(piece.rows)
                    self._kept.add(piece.rows, chunk.partition * PARTITION + numbers, expired_us, kept)
        self._saved = replace(self._saved, kept={str(p): n for p, n in kept.items()})

    @property
    def _retained_so_far(self) -> dict[int, int]:
        return {int(p): n for p, n in self._saved.kept.items()}


def _skew_us(definition: Definition) -> int:
    """Return how far ahead of the clock messages may be if nothing else is said, as in a pipeline; a minute at least."""
    if isinstance(definition, CountDefinition):
        return 0
    return definition.windows.size_us if isinstance(definition, WindowDefinition) else definition.skew_us


def _room(definition: Definition, keep: int) -> MessageRetention | None:
    """Return the retention of messages; ConfigError if it is no number by count, or a number by time."""
    if keep is False:
        return None
    if isinstance(definition, CountDefinition):
        if keep is True or keep < 1:
            raise ConfigError(
                f"keep_messages: {keep!r} says not how many; by count write the number of messages of each partition, as in 1000"
            )
        return MessageRetention(by_time=False, length=keep, near=keep)
    if keep is not True:
        raise ConfigError(f"keep_messages: {keep!r} is of windows by count; by time write True, for the retention")
    if isinstance(definition, SessionWindows):
        return MessageRetention(by_time=True, length=definition.kept_us, near=definition.widest_us)
    return MessageRetention(by_time=True, length=definition.retention_us, near=definition.windows.span_us)


def _policies(definition: Definition, emit: Emit, time: str | None) -> Any:
    """Return when windows are sent; ConfigError for windows, or a time, that can't be. Sessions are sent with every change."""
    if time is None and not isinstance(definition, CountDefinition):
        raise ConfigError("time: None goes with windows by count; write the column of the event time")
    if isinstance(definition, SessionWindows):
        if emit != Emit(tick_offset=emit.tick_offset):
            raise ConfigError("emit: is of windows; sessions by time are sent with every change, leave it out")
        return None
    from sessionlake.standalone.contents import ANY_COUNT, window_config  # noqa: PLC0415 (an import of the class needs no pydantic)

    window = ANY_COUNT if isinstance(definition, CountDefinition) else definition.content
    section: Any = window_config(window, emit.content).section
    return section.emit.policies
