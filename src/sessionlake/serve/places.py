"""Places that all callers share: of requests in work, and of requests that wait for their client or for a batch."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sessionlake.serve.refusals import RefusedError

PLACE = "sessionlake.place"
"""The name of a request's place in its scope."""
Caller = bytes | str
"""Who asks: the digest of a token; without one an address."""
IN_WORK = 64
WAITING = 256
"""Requests whose body is still being sent, or that wait for a batch: they cost little."""
_AGAIN_S, _LOOK_S = 1.0, 0.02
"""Seconds for which a request that has waited looks for a place in work, and seconds between two looks."""


class Shares:
    """Places, shared among callers: a caller gets another one as long as it holds fewer than are free.

    For example one caller alone gets half of the places, the next one half of the rest. So a new caller always finds
    some free.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._taken: Counter[Caller] = Counter()

    def take(self, caller: Caller) -> bool:
        """Take a place; say whether there was one."""
        if self._taken[caller] >= self._free:
            return False
        self._taken[caller] += 1
        self._free -= 1
        return True

    def give_back(self, caller: Caller) -> None:
        """Give a place back."""
        self._free += 1
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]


class Places:
    """The places of a server."""

    def __init__(self) -> None:
        self.work, self.waits = Shares(IN_WORK), Shares(WAITING)


class Place:
    """The place of one request; RefusedError (503) if there is none. One that `costs` nothing needs none in work."""

    def __init__(self, places: Places, caller: Caller, *, costs: bool = True) -> None:
        self._places, self._caller = places, caller
        self._works = False
        if costs and not self._take():
            raise self._full()

    def leave(self) -> None:
        """Give it back."""
        if self._works:
            self._works = False
            self._places.work.give_back(self._caller)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Give the place in work to others while the body waits. If it raises, the request has lost the place."""
        if not self._places.waits.take(self._caller):
            raise RefusedError(
                503,
                f"server: of {WAITING} requests that wait this caller has its share; ask again later",
                {"retry-after": "1"},
            )
        try:
            self.leave()
            yield
            await self._return()
        finally:
            self._places.waits.give_back(self._caller)

    async def _return(self) -> None:
        due = time.monotonic() + _AGAIN_S
        while not self._take():
            if time.monotonic() >= due:
                raise self._full()
            await asyncio.sleep(_LOOK_S)

    def _take(self) -> bool:
        self._works = self._places.work.take(self._caller)
        return self._works

    def _full(self) -> RefusedError:
        return RefusedError(
            503,
            f"server: of {IN_WORK} requests in work this caller has its share; ask again later",
            {"retry-after": "1"},
        )
