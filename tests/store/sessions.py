"""The engine's session store, one session a call: for tests, which fill and read it so. The engine works on many keys at once."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sessionlake.columnar.records import Records
from sessionlake.store.segmented import SegmentedSessionStore

_FIRST = np.iinfo(np.int64).min


class Session(NamedTuple):
    """A stored session; its times are microseconds."""

    key: str
    start: int
    end: int
    count: int = 1
    revision: int = 0
    state: bytes = b"s"


class OneSessionAtATime(SegmentedSessionStore):
    """A session store that is written and read one session a call."""

    def fetch(self, key: str) -> list[Session]:
        """Return all sessions of a key, ascending by (end, start)."""
        return _rows([key], self.find_many(pa.array([key.encode()]), np.array([_FIRST])).sessions)

    def all(self) -> list[Session]:
        """Return all sessions, ascending by (key, end, start)."""
        keys, found = self.scan(_FIRST)
        return sorted(_rows([key.decode() for key in keys], found), key=lambda row: (row.key, row.end, row.start))

    def put(self, session: Session) -> None:
        """Write a session; one with the same key, start and end is replaced."""
        self._rewrite(session.key, session.start, session.end, [session])

    def remove(self, key: str, start: int, end: int) -> None:
        """Remove a session, if it is there."""
        self._rewrite(key, start, end, [])

    def _rewrite(self, key: str, start: int, end: int, added: list[Session]) -> None:
        segment = end // self.interval_us
        others = [s for s in self.fetch(key) if s.end // self.interval_us == segment and s[1:3] != (start, end)]
        rows = [*others, *added]
        owner, starts, ends, counts, revisions = np.array([(0, *row[1:5]) for row in rows], np.int64).reshape(-1, 5).T
        records = Records(owner, starts, ends, counts, revisions, pa.array([row.state for row in rows], pa.binary()))
        writes = self.writes(pa.array([key]), records, np.zeros(1, np.int64), np.array([segment]))
        self.apply(writes, {}, _FIRST)


def _rows(keys: list[str], found: Records) -> list[Session]:
    columns = (getattr(found, name).tolist() for name in ("codes", "start", "end", "count", "revision"))
    states = found.state.to_pylist()
    return [
        Session(keys[owner], *row, state)
        for (owner, *row), state in zip(zip(*columns, strict=True), states, strict=True)
    ]
