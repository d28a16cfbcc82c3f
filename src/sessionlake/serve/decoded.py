"""Rows as their live view shows them, of the bytes that stores keep."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, cast

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import build_aggregates
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import values_of
from sessionlake.aggregates.scalars import from_state, state_type
from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.columnar.identity import record_id, record_ids
from sessionlake.columnar.records import Records
from sessionlake.config.load import Config
from sessionlake.errors import ConfigError
from sessionlake.operators.keyed.section import TableSection
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.quarantine import above
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.serve.encoded import Times, moment
from sessionlake.serve.found import ALL, OPEN, QUARANTINED, Decoder, Found, Packed, Span
from sessionlake.serve.told import columns_as_they_are, columns_of
from sessionlake.serve.windowed import WindowDecoder
from sessionlake.sources.columns import type_named
from sessionlake.sources.record_columns import META
from sessionlake.store.layout import Heads, count_of, heads_of, sessions_of, states_of, unpack
from sessionlake.store.rows import has_rows, row_of, stored_of
from sessionlake.stream.watermark import NO_WATERMARK, watermark_of
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.changelog import HIDDEN_WRITTEN, SESSIONS, TABLE
from sessionlake.warehouse.schemas import OPEN_UNTIL, TIME

_NO_STATES = pa.array([], pa.binary())


def decoder_of(config: Config, commit: BatchCommit) -> Decoder:
    """Return that of a pipeline as of a batch; ConfigError for joins and windows by count."""
    types = {name: type_named(text) for name, text in commit.settings.types.items()}
    if config.operator == "session":
        return SessionDecoder(config, commit, types)
    if config.operator == "table":
        return TableDecoder(config, types, commit.state.get(HIDDEN_WRITTEN))
    if config.operator == "window" and not config.section.by_count:
        return WindowDecoder(config, commit)
    computed = "windows by count" if config.operator == "window" else f"{config.operator}s"
    raise ConfigError(
        f"{config.operator}: stores of sessions, of tables and of windows by time can be read, not of {computed}; use `sessionlake sql`"
    )


class SessionDecoder:
    """Sessions: all that an event or a correction can still meet without a look into the tables (docs/rules.md, rule 7)."""

    operator = "session"

    def __init__(self, config: Config, commit: BatchCommit, types: dict[str, pa.DataType]) -> None:
        live = commit.settings.live
        self._windows = replace(SessionWindows.of(config), grace_us=live["grace_us"], retention_us=live["retention_us"])
        self._aggregates = build_aggregates(
            config.aggregates, types, with_id=config.event.id is not None, directory=config.pipeline.code
        )
        watermark = watermark_of(commit.state)
        bounds = self._windows.bounds(watermark)
        self._expired_us, self._open_us = bounds.expired_us, bounds.open_us
        self._quarantine = None if config.quarantine is None else config.quarantine.thresholds
        self._shows_open = config.section.shown == "all"
        self._codec, self._columns = StateCodec(self._aggregates), columns_of(self._aggregates)
        self.complete_from_us = None if watermark == NO_WATERMARK else self._expired_us

    def has(self, segment: int) -> bool:
        """Say yes."""
        del segment
        return True

    def rows(self, packed: Packed, include: Collection[str] = ALL) -> pa.Table:
        """Return sessions by key and start."""
        found, code = self._unpacked(packed)
        kept = np.flatnonzero(self._shown(found, include))
        kept = kept[np.lexsort((found.start[kept], code[kept]))]
        return self._table(packed, found.take(kept), code[kept])

    def size(self, value: bytes) -> int:
        """Return how many sessions a value has."""
        return count_of(value)

    def found(self, packed: Packed, include: Collection[str] = ALL) -> list[Found]:
        """Return the same sessions, their states packed."""
        keeps_until = self._windows.keeps_until
        # Arithmetic alone: it takes one time as it takes an array of them, which takes longer to make for a few.
        open_until = cast(Callable[[int], int], self._windows.open_until)
        kept = [
            (owner, fields, state)
            for owner, value in zip(packed.owner, packed.values, strict=True)
            for fields, state in sessions_of(value, with_until=keeps_until)
            if self._is_shown(fields[-1] if keeps_until else open_until(fields[1]), include)
        ]
        if self._quarantine is not None and QUARANTINED not in include and kept:
            start, end, count, revision, *_ = np.array([fields for _, fields, _ in kept], np.int64).T
            hidden = above(self._quarantine, Records(start, start, end, count, revision, _NO_STATES)).tolist()
            kept = [row for row, is_hidden in zip(kept, hidden, strict=True) if not is_hidden]
        kept.sort()
        keys = {owner: packed.keys[owner].decode() for owner, _, _ in kept}
        return [Found(keys[owner], fields[0], fields[1], fields, state) for owner, fields, state in kept]

    def page(self, packed: Packed, include: Collection[str], span: Span) -> tuple[list[Found], int, int | None]:
        """Return some sessions of one key, how many were looked at, and the start of the last of these if there are more."""
        key, with_until = packed.keys[0].decode(), self._windows.keeps_until
        found: list[Found] = []
        total, last = 0, None
        # Of one key those that are shown don't overlap: by end, as they are stored, they come by start, too.
        for value in reversed(packed.values) if span.descending else packed.values:
            heads = heads_of(value, with_until=with_until)
            places = np.flatnonzero(self._in_span(heads, span))
            if span.descending:
                places = places[::-1]
            looked = places[: span.most - total]
            kept = looked[self._shown(_records(heads[looked]), include)][: span.limit - len(found)]
            rows = zip(heads[kept].tolist(), states_of(value, heads, kept), strict=True)
            found += [Found(key, head[0], head[1], head[:-1], state) for head, state in rows]
            total += len(looked)
            if len(looked):
                last = int(heads["start"][looked[-1]])
            if len(found) == span.limit:
                break
            if len(looked) < len(places):
                return found, total, last
        return found, total, None

    def _in_span(self, heads: Heads, span: Span) -> Bools:
        """Say which sessions are asked for, and are not too cold to be shown."""
        until = heads["until"] if self._windows.keeps_until else self._windows.open_until(heads["end"])
        chosen: Bools = until >= self._expired_us
        if span.from_us is not None:
            chosen &= heads["end"] >= span.from_us
        if span.to_us is not None:
            chosen &= heads["start"] <= span.to_us
        if span.after_us is not None:
            start = heads["start"]
            chosen &= start < span.after_us if span.descending else start > span.after_us
        return chosen

    def told(self, found: Sequence[Found], times: Times) -> list[dict[str, Any]]:
        """Return sessions by the names of the columns, in their order."""
        if not found:
            return []
        states = [self._codec.decode_one(of.packed) for of in found]
        starts, ends, counts, revisions, *until = zip(*(of.head for of in found), strict=True)
        columns = {
            SESSIONS.key: [of.key for of in found],
            SESSIONS.start: [moment(time, times) for time in starts],
            SESSIONS.end: [moment(time, times) for time in ends],
            **({OPEN_UNTIL: [moment(time, times) for time in until[0]]} if until else {}),
            SESSIONS.id: [record_id(of.key.encode(), of.start_us) for of in found],
            "event_count": counts,
            "revision": revisions,
            **{column.name: column.told(states, times) for column in self._columns},
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _shown(self, found: Records, include: Collection[str]) -> Bools:
        """Say which sessions are shown; their states are not looked at."""
        shown: Bools = self._is_shown(until_of(self._windows, found), include)
        if self._quarantine is not None and QUARANTINED not in include:
            shown &= ~above(self._quarantine, found)
        return shown

    def _is_shown(self, until: Any, include: Collection[str]) -> Any:
        """Say which sessions that are open until then are shown, quarantine aside: of one a bool, of an array of them an array."""
        # What is colder may have been replaced in the tables since, and may have gone from the store or not.
        shown = until >= self._expired_us
        if not self._shows_open and OPEN not in include:
            shown &= until < self._open_us
        return shown

    def longest_open(self, packed: Packed, limit: int) -> tuple[pa.Table, bool]:
        """Return the sessions that events can still lengthen, the longest of them first, and whether there was any at all.

        Those in quarantine are left out. Of two that are equally long the one that began first comes first.
        """
        found, code = self._unpacked(packed)
        is_open = until_of(self._windows, found) >= self._open_us
        any_open = bool(is_open.any())
        if self._quarantine is not None:
            is_open &= ~above(self._quarantine, found)
        kept = np.flatnonzero(is_open)
        kept = kept[np.lexsort((code[kept], found.start[kept], (found.start - found.end)[kept]))][:limit]
        return self._table(packed, found.take(kept), code[kept]), any_open

    def _unpacked(self, packed: Packed) -> tuple[Records, Ints]:
        """Return the records, and of each the place of its key."""
        found = unpack(pa.array(packed.values, pa.binary()), with_until=self._windows.keeps_until)
        return found, np.asarray(packed.owner, np.int64)[found.codes]

    def _table(self, packed: Packed, found: Records, code: Ints) -> pa.Table:
        keys = _text(packed.keys).take(pa.array(code))
        states = self._codec.decode(found.state)
        columns = {
            SESSIONS.key: keys,
            SESSIONS.start: pa.array(found.start).cast(TIME),
            SESSIONS.end: pa.array(found.end).cast(TIME),
            **({} if found.until is None else {OPEN_UNTIL: pa.array(found.until).cast(TIME)}),
            SESSIONS.id: pa.array(record_ids(keys, found.start)),
            "event_count": pa.array(found.count),
            "revision": pa.array(found.revision),
            **dict(zip(config_names(self._aggregates), values_of(self._aggregates, states), strict=True)),
        }
        return pa.table(columns)


class TableDecoder:
    """The rows of a keyed table; markers of deletions are no rows, nor is what was written at `hidden_us` or before it."""

    operator = "table"
    complete_from_us: int | None = None

    def __init__(self, config: Config, types: dict[str, pa.DataType], hidden_us: int | None = None) -> None:
        self._hidden_us = hidden_us
        own = (config.event.key, config.event.time, config.event.id, *META)
        section = cast(TableSection, config.section)
        names = section.columns or [name for name in types if name not in own]
        self._types = {name: types[name] for name in names}
        self._offsets = config.source.kind == "kafka"
        self._ids = config.event.id is not None and not self._offsets
        states = [state_type(type_, name) for name, type_ in self._types.items()]
        self._codec, self._columns = StateCodec((), states), columns_as_they_are(self._types, states)

    def has(self, segment: int) -> bool:
        """Say whether it is a segment of rows."""
        return has_rows(segment)

    def rows(self, packed: Packed, include: Collection[str] = ALL) -> pa.Table:
        """Return rows by key."""
        del include
        owner = np.asarray(packed.owner, np.int64)
        # A key has one row, in any of the segments.
        order = np.argsort(owner)
        stored = stored_of(owner[order], [packed.values[at] for at in order.tolist()])
        if self._hidden_us is not None:
            stored = stored.where(stored["written"] > self._hidden_us)
        every = np.arange(len(stored))
        columns = zip(self._codec.decode(stored.packed(every)), self._types.values(), strict=True)
        places = {f"event_{name}": pa.array(stored[name]) for name in ("partition", "offset")} if self._offsets else {}
        return pa.table(
            {
                TABLE.key: _text(packed.keys).take(pa.array(stored.codes)),
                "event_time": pa.array(stored["time"]).cast(TIME),
                **dict(zip(self._types, (from_state(column, type_) for column, type_ in columns), strict=True)),
                "revision": pa.array(stored["revision"]),
                **places,
                **({"event_id": stored.ids(every)} if self._ids else {}),
            }
        )

    def size(self, value: bytes) -> int:
        """Return one."""
        del value
        return 1

    def found(self, packed: Packed, include: Collection[str] = ALL) -> list[Found]:
        """Return the same rows, whole."""
        del include
        rows = sorted(zip(packed.owner, packed.values, strict=True), key=itemgetter(0))
        if self._hidden_us is not None:
            rows = [(owner, value) for owner, value in rows if row_of(value).written > self._hidden_us]
        return [Found(packed.keys[owner].decode(), 0, 0, (), value) for owner, value in rows]

    def page(self, packed: Packed, include: Collection[str], span: Span) -> tuple[list[Found], int, int | None]:
        """Return the row of one key."""
        del span
        return self.found(packed, include), len(packed.values), None

    def told(self, found: Sequence[Found], times: Times) -> list[dict[str, Any]]:
        """Return rows by the names of the columns, in their order."""
        stored = [row_of(of.packed) for of in found]
        states = [self._codec.decode_one(row.packed) for row in stored]
        columns: dict[str, list[Any]] = {
            TABLE.key: [of.key for of in found],
            "event_time": [moment(row.time, times) for row in stored],
            **{column.name: column.told(states, times) for column in self._columns},
            "revision": [row.revision for row in stored],
        }
        if self._offsets:
            columns["event_partition"] = [row.partition for row in stored]
            columns["event_offset"] = [row.offset for row in stored]
        if self._ids:
            columns["event_id"] = [row.id.decode() for row in stored]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _records(heads: Heads) -> Records:
    """Return records of heads, without states."""
    start, end, count, revision = (heads[name] for name in ("start", "end", "count", "revision"))
    return Records(
        start, start, end, count, revision, _NO_STATES, heads["until"] if "until" in (heads.dtype.names or ()) else None
    )


def config_names(aggregates: Sequence[Any]) -> list[str]:
    """Return the aggregates' names."""
    return [aggregate.name for aggregate in aggregates]


def _text(keys: Sequence[bytes]) -> pa.Array:
    return pa.array(keys, pa.binary()).cast(pa.string())
