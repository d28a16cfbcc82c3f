"""Which sessions a batch sends, which rows it deletes for them, and what waits (docs/rules.md, rules 260 to 263 and 265)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Bools, Ints, is_among
from sessionlake.columnar.records import Records, together
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.marks import Marks
from sessionlake.operators.sessions.rules import Verdict
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.operators.shared.windowing.batch_times import BatchTimes
from sessionlake.operators.shared.windowing.emission import (
    CURRENT,
    FOREVER,
    UNSENT_EARLY,
    UNSENT_LATE,
    WAITING,
    Firing,
    corrected,
    firings,
    sent_since,
)
from sessionlake.operators.shared.windowing.policies import OFF, Policies
from sessionlake.store.lists import Listed, ListedSessionStore, listed_together


@dataclass(frozen=True)
class Known:
    """The sessions of a shard that a batch knows: the changed ones, then the stored ones as they were before."""

    changed: int
    """How many are changed."""
    codes: Ints
    start: Ints
    last: Ints
    """The time of the last event."""
    until: Ints | None
    end: Ints
    """The first time at which no event joins the session."""
    revision: Ints
    reach: Ints
    stays: Bools
    """Whether the session is there after the batch."""

    @classmethod
    def of(cls, windows: SessionWindows, stored: Records, marks: Marks, verdict: Verdict, full_us: int) -> "Known":
        """Put them together; `full_us` is how far sessions were full before the batch."""
        changed = verdict.changed
        n = len(changed)

        def both(name: str) -> Ints:
            return np.concatenate([getattr(changed, name), getattr(stored, name)])

        return cls(
            n,
            both("codes"),
            both("start"),
            both("end"),
            together([(n, changed.until), (len(stored), stored.until)]),
            np.concatenate([until_of(windows, changed), until_of(windows, stored)]) + 1,
            both("revision"),
            np.concatenate([np.full(n, full_us), marks.reach]),
            np.concatenate([np.ones(n, bool), ~verdict.gone]),
        )

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True)
class Shown:
    """Starts under which rows of stored sessions are in the table, each with the row of its session among the known ones after the batch."""

    owner: Ints
    """The changed session that it is of now, or the stored one."""
    start: Ints
    removed: Bools
    """Whether the session was removed."""

    @classmethod
    def of(cls, known: Known, stored: Records, marks: Marks, sent_before: Bools, verdict: Verdict) -> "Shown":
        """Return them: of a stored session that was sent since it changed its own start alone, else those of its marks."""
        sent, rest = np.flatnonzero(sent_before), ~sent_before[marks.owner]
        row = np.concatenate([sent, marks.owner[rest]])
        into = verdict.merged_into[row]
        return cls(
            np.where(into >= 0, into, known.changed + row),
            np.concatenate([stored.start[sent], marks.shown[rest]]),
            verdict.gone[row] & (into < 0),
        )


@dataclass(frozen=True)
class Sending:
    """The rows that a batch sends of a shard's sessions, and the marks with which changed sessions are stored."""

    rows: Ints
    """Rows of the known sessions that are sent, by key and start."""
    trigger: pa.Array
    """Why each is."""
    deleted: Records
    """The rows of the table that go, by key and start."""
    marks: Marks
    """The marks of the changed sessions."""
    lists: Sequence[pa.Table]
    """The writes that keep the store's lists."""
    unsent: Mapping[str, int]
    """How many changes wait to be sent."""


@dataclass(frozen=True)
class Due:
    """The entries of lists whose sessions may be due."""

    entries: Listed
    """Keys; `start` is the time until which a session was open as it was listed. One that has grown since is open for longer."""
    letters: Sequence[str]
    """The letters of the lists that were read, in the order of their entries."""
    sizes: Sequence[int]
    """How many entries are of each."""

    def of(self, letter: str, codes: Ints) -> Ints:
        """Return, of the codes of all entries' keys, those of a letter's."""
        parts = np.split(codes, np.cumsum(self.sizes)[:-1]) if len(self.sizes) else []
        return np.concatenate(
            [codes[:0], *(part for one, part in zip(self.letters, parts, strict=True) if one == letter)]
        )


def due_sessions(emit: Policies, store: ListedSessionStore, times: BatchTimes) -> Due:
    """Return what the store's lists name for a batch."""
    letters, found = list[str](), list[Listed]()
    for one in _fired(emit, times):
        low = times.before.close_us if one.reached else times.before.full_us
        for letter in one.lists:
            some = store.lists(letter, low, one.high_us)
            # Lists are read by buckets, which may reach beyond the bounds.
            found.append(some.take(np.flatnonzero((some.start >= low) & (some.start < one.high_us))))
            letters.append(letter)
    return Due(listed_together(found), letters, [len(one) for one in found])


def sending(
    windows: SessionWindows,
    emit: Policies,
    keys: pa.Array,
    stored: Records,
    marks: Marks,
    verdict: Verdict,
    due: Due,
    named: Ints,
    times: BatchTimes,
    store: ListedSessionStore,
) -> Sending:
    """Decide what is sent. `marks` are those of the stored sessions, `named` the codes of the keys of the `due` entries."""
    known = Known.of(windows, stored, marks, verdict, times.before.full_us)
    fired, n = _fired(emit, times), known.changed
    place = np.full(len(known), -1)
    for number, one in enumerate(fired):
        place[known.stays & one.due(known.end, known.revision, known.reach)] = number
    rows = np.flatnonzero(place >= 0)
    rows = rows[np.lexsort((known.start[rows], known.codes[rows]))]
    sent_before = sent_since(times.before, known.end[n:], stored.revision, marks.reach)
    shown = Shown.of(known, stored, marks, sent_before, verdict)
    lists, unsent = _lists(emit, keys, known, place >= 0, ~sent_before, verdict, due, named, times, store)
    return Sending(
        rows,
        pa.array([one.trigger for one in fired], pa.string()).take(pa.array(place[rows])),
        _deleted(known, rows, shown),
        _marks(n, times.before.full_us, shown, np.flatnonzero(place[:n] < 0)),
        lists,
        unsent,
    )


def _fired(emit: Policies, times: BatchTimes) -> list[Firing]:
    found = firings(emit, times.before, times.after, times.ticks, times.batch_id)
    return [*found, corrected(times.before, times.batch_id)]


def _deleted(known: Known, rows: Ints, shown: Shown) -> Records:
    """Return the rows that go: other starts that are shown of a sent session, and all of a removed one."""
    other = shown.start != known.start[shown.owner]
    goes = np.flatnonzero(shown.removed | (is_among(shown.owner, rows) & other))
    if shown.removed[goes].any():
        # A row that is sent takes the place of a removed one with its key and start.
        sent = set(zip(known.codes[rows].tolist(), known.start[rows].tolist(), strict=True))
        pairs = zip(known.codes[shown.owner[goes]].tolist(), shown.start[goes].tolist(), strict=True)
        goes = goes[[pair not in sent for pair in pairs]]
    of, start = shown.owner[goes], shown.start[goes]
    order = np.lexsort((start, known.codes[of]))
    of, start = of[order], start[order]
    none, until = np.zeros(len(of), np.int64), None if known.until is None else known.until[of]
    return Records(known.codes[of], start, known.last[of], none, none, pa.nulls(len(of), pa.binary()), until)


def _marks(n: int, reach_us: int, shown: Shown, waits: Ints) -> Marks:
    """Return the marks of the changed sessions; of one that is sent with the batch no start need be known."""
    kept = np.flatnonzero(~shown.removed & is_among(shown.owner, waits))
    owner, start = shown.owner[kept], shown.start[kept]
    number = np.bincount(owner, minlength=n).astype(np.int64)
    return Marks(np.full(n, reach_us), number, start[np.lexsort((start, owner))])


def _lists(
    emit: Policies,
    keys: pa.Array,
    known: Known,
    sent: Bools,
    waited: Bools,
    verdict: Verdict,
    due: Due,
    named: Ints,
    times: BatchTimes,
    store: ListedSessionStore,
) -> tuple[list[pa.Table], dict[str, int]]:
    """Return the writes that keep the lists, and how many changed sessions wait to be sent; `waited` are the stored ones that did."""
    n, before, after = known.changed, times.before, times.after
    is_changed = np.arange(len(known)) < n
    waits = known.stays & ~sent & (is_changed | np.concatenate([np.zeros(n, bool), waited]))
    is_current, was_current = known.end > after.full_us, known.end[n:] > before.full_us
    # Since which batch a current session is in a list, whether it waits for a tick or not.
    was_listed = was_current & (known.revision[n:] >= before.lists_from_in(times.batch_id))
    early, late = waits & is_current, waits & ~is_current
    tables: list[pa.Table] = []
    for letter, waiting, listed, ended_us in (
        (
            WAITING["early"],
            # Without early ticks nothing waits for one.
            early & (emit.early != OFF),
            waited & was_current,
            FOREVER if times.ticks.early else after.full_us,
        ),
        (CURRENT, known.stays & is_current, was_listed, after.full_us),
        (WAITING["late"], late, waited & ~was_current, FOREVER if times.ticks.late else after.close_us),
    ):
        # What it was made of is in the list, except that entries of a named key may be behind.
        has_entry = np.zeros(len(known), bool)
        has_entry[n:] = True
        has_entry[verdict.merged_into[listed & (verdict.merged_into >= 0)]] = True
        new = np.flatnonzero(waiting & (is_among(known.codes, due.of(letter, named)) | ~has_entry))
        if names := store.ended_lists(letter, ended_us):
            tables.append(store.list_deletes(names))
        if len(new):
            texts = keys.take(pa.array(known.codes[new])).cast(pa.string())
            tables.append(store.list_writes(letter, times.batch_id, known.end[new] - 1, texts))
    return tables, {UNSENT_EARLY: int((early & is_changed).sum()), UNSENT_LATE: int((late & is_changed).sum())}
