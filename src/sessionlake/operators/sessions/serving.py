"""Sessions read from the stores next to the stream: as rows, and as a session store."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import values_of
from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.columnar.identity import record_id, record_ids
from sessionlake.columnar.records import Records
from sessionlake.config.load import Config
from sessionlake.operators.sessions.changelog import SESSIONS
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.marks import MarkedCodec
from sessionlake.operators.sessions.quarantine import above
from sessionlake.operators.sessions.section import SessionSection
from sessionlake.operators.sessions.windows import SessionWindows, bounds_after
from sessionlake.serve.answer_columns import columns_of
from sessionlake.serve.decoder import OpenRowDecoder, event_types, json_rows, key_texts
from sessionlake.serve.encoded import Times, time_value
from sessionlake.serve.queryable import ReadOnlyTimedRows, Row, RowSerde, pack_row, unpack_row
from sessionlake.serve.result_rows import ALL, OPEN, QUARANTINED, Packed, ResultRow, Span
from sessionlake.store.layout import Heads, count_of, heads_of, sessions_of, states_of, unpack
from sessionlake.store.lists import LISTS
from sessionlake.store.standalone.interface import ReadOnlySessionStore
from sessionlake.store.standalone.keys import LEAST, SESSION_KEYS, units
from sessionlake.store.standalone.serdes import Serdes
from sessionlake.store.standalone.sessions import SessionStoreOfRows
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.watermark import NO_WATERMARK, watermark_of
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.schemas import OPEN_UNTIL, TIME

if TYPE_CHECKING:
    from sessionlake.serve.replica import View

_NO_STATES = pa.array([], pa.binary())


class SessionDecoder(OpenRowDecoder):
    """Sessions: all that an event or a correction can still meet without a look into the tables (docs/rules.md, rule 7)."""

    store_type = "session_store"

    def __init__(self, config: Config, commit: BatchCommit) -> None:
        live = commit.settings.live
        config = config.as_taken(commit.settings.rebuild, commit.settings.live)
        self._windows = replace(SessionWindows.of(config), grace_us=live["grace_us"], retention_us=live["retention_us"])
        pinned = Pinned.of_settings(commit.settings, commit.batch_id)
        self._aggregates = pinned.built(config, event_types(commit))
        section, watermark = cast("SessionSection", config.section), watermark_of(commit.state)
        by_policy = section.policies is not None
        bounds = bounds_after(self._windows, commit.state, by_policy=by_policy)
        self._expired_us, self._open_us = bounds.expired_us, bounds.open_us
        quarantine = section.quarantine
        self._quarantine = None if quarantine is None else quarantine.thresholds
        self._shows_open = section.facts.shown != "final"
        codec = MarkedCodec if by_policy else StateCodec
        self._codec, self._columns = codec(self._aggregates), columns_of(self._aggregates)
        self.complete_from_us = None if watermark == NO_WATERMARK else self._expired_us

    def open_store(self, view: "View") -> ReadOnlySessionStore[str, Row]:
        """Return the sessions as a session store."""
        serde = RowSerde(view, unpack_row, hidden=(SESSIONS.key, SESSIONS.start, SESSIONS.end, SESSIONS.id))
        return SessionStoreOfRows("sessions", _Sessions(view), Serdes.string(), serde, units("us"))

    def has(self, segment: int) -> bool:
        """Say whether it is a segment of sessions."""
        return segment != LISTS

    def rows(self, packed: Packed, include: Collection[str] = ALL) -> pa.Table:
        """Return sessions by key and start."""
        records, owner = self._unpacked(packed)
        kept = np.flatnonzero(self._shown(records, include))
        kept = kept[np.lexsort((records.start[kept], owner[kept]))]
        found = records.take(kept)
        keys = key_texts(packed).take(pa.array(owner[kept]))
        values = values_of(self._aggregates, self._codec.decode(found.state))
        columns = {
            SESSIONS.key: keys,
            SESSIONS.start: pa.array(found.start).cast(TIME),
            SESSIONS.end: pa.array(found.end).cast(TIME),
            **({} if found.until is None else {OPEN_UNTIL: pa.array(found.until).cast(TIME)}),
            SESSIONS.id: pa.array(record_ids(keys, found.start)),
            "event_count": pa.array(found.count),
            "revision": pa.array(found.revision),
            **{aggregate.name: column for aggregate, column in zip(self._aggregates, values, strict=True)},
        }
        return pa.table(columns)

    def size(self, value: bytes) -> int:
        """Return how many sessions a value has."""
        return count_of(value)

    def result_rows(self, packed: Packed, include: Collection[str] = ALL) -> list[ResultRow]:
        """Return the same sessions, their states packed."""
        keeps_until = self._windows.keeps_until
        # Arithmetic alone: it takes one time as it takes an array of them, which takes longer to make for a few.
        open_until = cast("Callable[[int], int]", self._windows.open_until)
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
        return [ResultRow(keys[owner], fields[0], fields[1], fields, state) for owner, fields, state in kept]

    def page(self, packed: Packed, include: Collection[str], span: Span) -> tuple[list[ResultRow], int, int | None]:
        """Return some sessions of one key, how many were looked at, and the start of the last one if there are more."""
        key, with_until = packed.keys[0].decode(), self._windows.keeps_until
        found: list[ResultRow] = []
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
            found += [ResultRow(key, head[0], head[1], head[:-1], state) for head, state in rows]
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

    def json_values(self, found: Sequence[ResultRow], times: Times) -> list[dict[str, Any]]:
        """Return sessions by the names of the columns, in their order."""
        if not found:
            return []
        states = [self._codec.decode_one(of.packed) for of in found]
        starts, ends, counts, revisions, *until = zip(*(of.head for of in found), strict=True)
        columns: dict[str, Any] = {
            SESSIONS.key: [of.key for of in found],
            SESSIONS.start: [time_value(time, times) for time in starts],
            SESSIONS.end: [time_value(time, times) for time in ends],
            **({OPEN_UNTIL: [time_value(time, times) for time in until[0]]} if until else {}),
            SESSIONS.id: [record_id(of.key.encode(), of.start_us) for of in found],
            "event_count": counts,
            "revision": revisions,
            **{column.name: column.json_values(states, times) for column in self._columns},
        }
        return json_rows(columns)

    def _shown(self, found: Records, include: Collection[str]) -> Bools:
        """Say which sessions are shown; their states are not looked at."""
        shown: Bools = self._is_shown(until_of(self._windows, found), include)
        if self._quarantine is not None and QUARANTINED not in include:
            shown &= ~above(self._quarantine, found)
        return shown

    def _is_shown(self, until: Any, include: Collection[str]) -> Any:
        """Say which sessions that are open until then are shown, quarantine aside: of one a bool, of an array of them an array."""
        # A colder session may have been replaced in the tables since. It may or may not be in the store.
        shown = until >= self._expired_us
        if not self._shows_open and OPEN not in include:
            shown &= until < self._open_us
        return shown

    def longest_open(self, packed: Packed, limit: int) -> tuple[list[ResultRow], bool]:
        """Return the sessions that events can still lengthen, the longest first, and whether there was any at all."""
        records, owner = self._unpacked(packed)
        is_open = until_of(self._windows, records) >= self._open_us
        any_open = bool(is_open.any())
        if self._quarantine is not None:
            is_open &= ~above(self._quarantine, records)
        kept = np.flatnonzero(is_open)
        length = (records.end - records.start)[kept]
        kept = kept[np.lexsort((owner[kept], records.start[kept], -length))][:limit]
        until = [] if records.until is None else [records.until]
        heads = np.column_stack([records.start, records.end, records.count, records.revision, *until])[kept].tolist()
        rows = zip(owner[kept].tolist(), heads, records.state.take(pa.array(kept)).to_pylist(), strict=True)
        return [
            ResultRow(packed.keys[at].decode(), head[0], head[1], tuple(head), state) for at, head, state in rows
        ], any_open

    def _unpacked(self, packed: Packed) -> tuple[Records, Ints]:
        """Return the records, and for each the place of its key."""
        records = unpack(pa.array(packed.values, pa.binary()), with_until=self._windows.keeps_until)
        return records, np.asarray(packed.owner, np.int64)[records.codes]


class _Sessions(ReadOnlyTimedRows):
    """Sessions by segment of the end, key and end; of one key by end."""

    keys = SESSION_KEYS
    live_from = LEAST

    def get(self, key: bytes, time: int, rank: int) -> bytes | None:
        found = self.find(key, key, time, time, backward=False)
        return next((data for _, _, start, data in found if start == rank), None)

    def find(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        time_from: int,
        time_to: int,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        for key, found in self._of_keys(key_from, key_to, backward):
            for one in reversed(found) if backward else found:
                if time_from <= one.end_us <= time_to:
                    yield key, one.end_us, one.start_us, pack_row(one)

    def _of_keys(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[tuple[bytes, list[ResultRow]]]:
        if key_from is not None and key_from == key_to:
            yield key_from, self._view.row_decoder.result_rows(self._view.packed([key_from.decode()]))
            return
        numbers = self._numbers()
        for number in reversed(numbers) if backward else numbers:
            for key, value in self._items([number], key_from, key_to, backward):
                yield key, self._found(key, value)


def _records(heads: Heads) -> Records:
    """Return records of heads, without states."""
    start, end, count, revision = (heads[name] for name in ("start", "end", "count", "revision"))
    return Records(
        start, start, end, count, revision, _NO_STATES, heads["until"] if "until" in (heads.dtype.names or ()) else None
    )
