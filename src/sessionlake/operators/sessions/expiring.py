"""A cleanup of a shard: the closed sessions that have expired, after the batch's events and corrections (docs/rules.md, rules 177 and 178)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.partials import values_of
from sessionlake.columnar.arrays import Ints
from sessionlake.columnar.records import Records, concat
from sessionlake.engine.operator import BatchContext
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.ttl import LEFT, REMOVED_EVENTS, SessionTtl
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.operators.shared.cleanups.brake import GONE, ROUND_OF, Round
from sessionlake.operators.shared.cleanups.brake import LEFT as STILL_THERE
from sessionlake.operators.shared.cleanups.names import TTL
from sessionlake.operators.shared.cleanups.rule import Since
from sessionlake.operators.shared.cleanups.schedule import (
    BEGAN,
    CLEANUP_US,
    LEFT_OVER,
    MAX_LAG,
    MAX_ROUND,
    SCANNED,
    TOOK,
    Stopwatch,
    began_of,
)
from sessionlake.store.segmented import Overlay, Page, SegmentedSessionStore
from sessionlake.warehouse.schemas import OPEN_UNTIL, TIME

PAGE = 10_000
"""Values of the store that are in memory at a time; a value holds a key's sessions of a segment."""
_LAST_US = 1 << 62
_SEGMENT, _KEY = "segment", "key"
"""The cursor's fields: the place of the last value that was looked at, the key as text; none at the start."""


@dataclass(frozen=True)
class SessionRows:
    """Sessions in columns, as rules of expiry see them."""

    spec: SessionizerSpec
    keys: pa.Array
    """Text: the key of each."""
    sessions: Records

    def __len__(self) -> int:
        return len(self.sessions)

    def since(self, which: Since) -> Ints:
        """Return the ends: the age of a session counts from its end."""
        del which
        return self.sessions.end

    def visible(self) -> Mapping[str, pa.Array]:
        """Return the columns of a session's row that SQL sees."""
        rows = self.sessions
        states = self.spec.stored_codec.decode(rows.state)
        until = {} if rows.until is None else {OPEN_UNTIL: pa.array(rows.until).cast(TIME)}
        values = zip(self.spec.value_types, values_of(self.spec.aggregates, states), strict=True)
        return {
            "session_key": self.keys,
            **self.spec.columns.key_parts(self.keys),
            "session_start": pa.array(rows.start).cast(TIME),
            "session_end": pa.array(rows.end).cast(TIME),
            "event_count": pa.array(rows.count),
            **until,
            **dict(values),
        }


@dataclass(frozen=True)
class ExpiredSessions:
    """The sessions that a cleanup removes from a shard."""

    keys: pa.Array
    """Text: the key of each session."""
    sessions: Records
    """Codes are places among the keys."""
    writes: pa.Table
    """The store's writes: the batch's own, and the values without these sessions."""
    stats: Mapping[str, int]
    cursor: Mapping[str, object] | None


def expired_tombstones(keys: pa.Array, gone: Records) -> pa.Table:
    """Return the rows with which the warehouse records sessions that a rule removed: a backfill must not bring them back."""
    names = ["correction_id", "key", "start_time", "revision"]
    start = pa.array(gone.start).cast(TIME)
    return pa.Table.from_arrays([pa.repeat(TTL, len(gone)), keys, start, pa.array(gone.revision)], names=names)


@dataclass(frozen=True)
class _PageOutcome:
    """The result of one page."""

    gone: SessionRows
    writes: pa.Table | None
    """The values without the removed sessions; None if none goes."""
    looked: int
    """Warm sessions that the batch left as they were."""
    closed: int
    """How many sessions of `looked` are closed."""
    last: tuple[int, bytes] | None
    """The place of the last value with a session of `looked`; None if there is none."""
    more: bool
    """Whether the budget ended before another such value."""


def expired_sessions(
    spec: SessionizerSpec,
    ttl: SessionTtl,
    bounds: Bounds,
    clock_us: int,
    store: SegmentedSessionStore,
    writes: pa.Table | None,
    context: BatchContext,
) -> ExpiredSessions:
    """Return the sessions that a cleanup at a time of its clock removes; `writes` are those of the batch, which is not in the store yet.

    The order of the search depends on the warm sessions alone, by segment and key, and on no others that the store may
    still hold: so a store that was restored gives the same.
    """
    watch, most = Stopwatch(), ttl.budget(context.state)
    # If a budget was set before, its last round may have stopped midway: who looks at all begins at the start.
    cursor = {} if most is None else context.cursor
    last_closed_us = bounds.open_us - 1
    last_us = last_closed_us if ttl.rule.ttl_us is None else min(last_closed_us, clock_us - ttl.rule.ttl_us)
    after = (int(cursor[_SEGMENT]), str(cursor[_KEY]).encode()) if _KEY in cursor else None
    at_start, overlay = after is None, Overlay(writes)
    found: list[_PageOutcome] = []
    looked, ended, more, room = 0, False, False, ttl.most
    while not ended and not more and room != 0:
        page = store.page(after, PAGE, last_us)
        left = None if most is None else max(most - looked, 0)
        one = _expire_page(spec, ttl, bounds, clock_us, store, overlay.over(page), context.batch_id, left, room)
        found.append(one)
        looked, more, ended = looked + one.looked, one.more, len(page) < PAGE
        after = page.last if len(page) else after
        room = None if room is None else room - len(one.gone)
    gone = concat([one.gone.sessions for one in found])
    keys = pa.chunked_array([one.gone.keys for one in found], pa.string()).combine_chunks()
    closed = sum(one.closed for one in found) - len(gone)
    whole = at_start and not more and room != 0
    if whole and not closed:
        whole = not _any_closed(spec, bounds, store, last_us, last_closed_us)
    rewritten = [one.writes for one in found if one.writes is not None]
    rows = SessionRows(spec, keys, gone)
    lag_us = ttl.rule.lag_us(rows, clock_us)
    began_us = began_of(cursor, clock_us)
    held, round_ = _round_counts(ttl, rows, context, clock_us, ended=not more)
    stats: dict[str, int] = {
        "deleted_by_ttl": len(gone),
        "scanned": looked,
        "decoded": sum(one.closed for one in found) if ttl.rule.reads_columns else 0,
        CLEANUP_US: watch.us,
        REMOVED_EVENTS: int(gone.count.sum()),
        LEFT: closed + (not whole),
        **({LEFT_OVER: 1} if room == 0 else {}),
        **held,
        **_count_left(spec, ttl, bounds, store, context, clock_us, held, len(gone)),
        **({} if lag_us is None else {MAX_LAG: lag_us}),
        **({} if most is None else {MAX_ROUND: max(clock_us - began_us, 0), SCANNED: looked, TOOK: watch.us}),
    }
    last = next((one.last for one in reversed(found) if one.last is not None), None)
    stopped = {_SEGMENT: last[0], _KEY: last[1].decode(), BEGAN: began_us} if more and last is not None else {}
    stopped |= round_
    gone = replace(gone, codes=np.arange(len(gone)))
    return ExpiredSessions(keys, gone, overlay.merged(rewritten), stats, None if stopped == context.cursor else stopped)


def _round_counts(
    ttl: SessionTtl, rows: SessionRows, context: BatchContext, clock_us: int, *, ended: bool
) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the number with which the brake decides, and for the cursor the progress of the shard's round."""
    brake, boxed = ttl.schedule.brake, ttl.max_duration_us is not None
    if brake is None:
        return {}, {}
    round_ = Round.of((context.cursor if boxed else context.state).get(ROUND_OF), brake.rule, clock_us, context.state)
    expected_us = brake.expected_us(round_, ttl.schedule.every_us or 0)
    known = 0 if expected_us is None else int(np.sum(ttl.rule.expired(rows, expected_us)))
    gone = 0 if brake.max_share == 1 else len(rows) - known
    now = round_.with_cleanup(gone)
    if not boxed:
        return {GONE: gone}, {}
    after = now.ended(began_of(context.cursor, clock_us)) if ended else now
    return {GONE: now.gone}, {ROUND_OF: after.to_json()}


def _count_left(
    spec: SessionizerSpec,
    ttl: SessionTtl,
    bounds: Bounds,
    store: SegmentedSessionStore,
    context: BatchContext,
    clock_us: int,
    held: Mapping[str, int],
    gone: int,
) -> dict[str, int]:
    """Return how many warm sessions a shard has left; counting stops at the number that the brake needs."""
    brake = ttl.schedule.brake
    if brake is None:
        return {}
    before = Round.of(context.state.get(ROUND_OF), brake.rule, clock_us, context.state).gone
    enough, there, after, ended = brake.enough(before + held[GONE]) + gone, 0, None, False
    while there < enough and not ended:
        page = store.page(after, PAGE, _LAST_US)
        there += int(np.sum(until_of(spec.windows, store.unpack(page.values)) >= bounds.expired_us))
        after, ended = (page.last if len(page) else after), len(page) < PAGE
    return {STILL_THERE: max(there - gone, 0)}


def _expire_page(
    spec: SessionizerSpec,
    ttl: SessionTtl,
    bounds: Bounds,
    clock_us: int,
    store: SegmentedSessionStore,
    page: Page,
    batch_id: int,
    most: int | None,
    room: int | None,
) -> _PageOutcome:
    """Look at the values of a page in turn, until one with which `most` warm sessions are reached that the batch left as they were.

    The first `room` of the expired sessions go; with None all of them. The value of the last one that has room is the last
    that is looked at, so that no number depends on what else is in the page.
    """
    stored = store.unpack(page.values)
    until = until_of(spec.windows, stored)
    mine = (until >= bounds.expired_us) & (stored.revision != batch_id)
    more = False
    if most is not None:
        counts = np.bincount(stored.codes[mine], minlength=len(page))
        beyond = np.flatnonzero((counts > 0) & (np.cumsum(counts) - counts >= most))
        more = len(beyond) > 0
        mine &= stored.codes < (beyond[0] if more else len(page))
    closed = np.flatnonzero(mine & (until < bounds.open_us))
    texts = page.keys.cast(pa.string())
    rows = SessionRows(spec, texts.take(pa.array(stored.codes[closed])), stored.take(closed))
    at = closed[np.asarray(ttl.rule.expired(rows, clock_us), bool)][:room]
    if room is not None and len(at) == room:
        mine &= stored.codes <= stored.codes[at[-1]]
        closed, more = closed[mine[closed]], False
    gone = SessionRows(spec, texts.take(pa.array(stored.codes[at])), stored.take(at))
    rest = np.delete(np.arange(len(stored)), at)
    writes = store.rewritten(page, stored.take(rest), stored.codes[at]) if len(at) else None
    last = stored.codes[np.flatnonzero(mine)[-1]] if mine.any() else None
    place = None if last is None else (int(page.segment[last]), page.keys[int(last)].as_py())
    return _PageOutcome(gone, writes, int(mine.sum()), len(closed), place, more)


def _any_closed(
    spec: SessionizerSpec, bounds: Bounds, store: SegmentedSessionStore, above_us: int, last_us: int
) -> bool:
    """Say whether closed sessions may be in the segments above those that were looked at."""
    after = (above_us // store.interval_us + 1, b"")
    while True:
        page = store.page(after, PAGE, last_us)
        stored = store.unpack(page.values)
        until = until_of(spec.windows, stored)
        if bool(np.any((until >= bounds.expired_us) & (until < bounds.open_us))):
            return True
        if len(page) < PAGE:
            return False
        after = page.last
