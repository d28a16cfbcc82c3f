"""Questions that need shards of other hosts: to the owner of a key, or to all hosts at one batch (docs/rules.md, rules 201 to 206)."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from sessionlake.config.load import Config
from sessionlake.serve import parts
from sessionlake.serve.answers import Answers
from sessionlake.serve.dispatch import HOP, Call, Reply
from sessionlake.serve.encoded import Times
from sessionlake.serve.follower import Follower, Now
from sessionlake.serve.peers import MovedError, Peers, target
from sessionlake.serve.questions import Question
from sessionlake.serve.refusals import RefusedError
from sessionlake.serve.replica import View
from sessionlake.serve.threads import Threads

_ATTEMPTS, _FOLLOWED_S = 3, 0.3
"""Attempts to get an answer from all hosts at one batch, and the seconds that each gets to reach the last batch."""
T = TypeVar("T")


class Hosts:
    """The servers of a pipeline, this one among them."""

    def __init__(self, config: Config, follower: Follower, answers: Answers, threads: Threads) -> None:
        self._follower, self._answers, self._threads = follower, answers, threads
        self._peers = Peers(config.serve)
        self._own = socket.gethostname()

    def url(self, host: str | None) -> str | None:
        """Return the address of a host's server; None if it can't be asked."""
        return self._peers.url(host)

    def close(self) -> None:
        """Close the connections."""
        self._peers.close()

    async def owner(self, key: str, call: Call, *, redirect: bool) -> Reply | None:
        """Return the answer of the server that has a key's shard, or a redirect to it; None if there is no such server."""
        if HOP in call.headers or self._follower.now.view is None:
            return None
        place = self._answers.metadata(key)
        url = None if place["local"] else self._asked(place["host"])
        if url is None:
            return None
        if redirect:
            return Reply(b"{}", 307, ((b"location", f"{url}{target(call)}".encode()),))
        pipeline = self._answers.pipeline
        return await self._threads.at_peers(lambda: self._peers.ask(url, place["host"], call, pipeline))

    async def all(self, asked: Question, times: Times, call: Call) -> Reply | None:
        """Return a page for which each host is asked for its shards; None if one of them does not answer."""
        own = partial(self._answers.part, asked, times=times)
        found = await self._gathered(asked, call, own, parts.Part.from_json)
        return None if found is None else Reply(self._answers.of_parts(asked, *found, times=times))

    async def longest_open(self, limit: int, times: Times, call: Call) -> Reply | None:
        """Return the longest open sessions of all hosts; None if one of them does not answer."""
        own = partial(self._answers.open_part, limit, times=times)
        found = await self._gathered(Question(), call, own, parts.OpenPart.from_json)
        return None if found is None else Reply(self._answers.open_of_parts(limit, *found, times=times))

    async def _gathered(
        self, asked: Question, call: Call, own: Callable[[View], T | None], read: Callable[[bytes], T]
    ) -> tuple[Now, list[T]] | None:
        """Return the parts of all hosts as of one batch, and that batch; None if a host does not answer, or there are none to ask.

        `own` makes this host's part from a view of its shards, and `read` decodes a part that another host sends.
        """
        if HOP in call.headers:
            return None
        for attempt in range(_ATTEMPTS):
            await asyncio.sleep(_FOLLOWED_S if attempt else 0)
            now = self._follower.now
            shares = self._shares(self._answers.lacks(asked, now))
            if now.view is None or not shares:
                return None
            others = frozenset(shard for share in shares.values() for shard in share)
            here = now.view.of_shards(frozenset(range(len(now.commit.shards))) - others)
            wanted = {url: parts.PartRequest(now.commit.batch_id, share) for url, share in shares.items()}
            try:
                found = await asyncio.gather(
                    self._threads.in_stores(partial(own, here)),
                    *(self._ask(url, call, part, read) for url, part in wanted.items()),
                )
            except MovedError:
                continue
            known = [part for part in found if part is not None]
            return (now, known) if len(known) == len(found) else None
        raise RefusedError(
            503,
            f"batch: the hosts were at different ones {_ATTEMPTS} times; ask again, or for fewer keys",
            {"retry-after": "1"},
        )

    def _asked(self, host: str | None) -> str | None:
        """Return the address of another host's server; None if it must not be asked."""
        url = None if host == self._own else self._peers.url(host)
        return None if url is None or self._peers.is_skipped(url) else url

    async def _ask(self, url: str, call: Call, part: parts.PartRequest, read: Callable[[bytes], T]) -> T | None:
        return await self._threads.at_peers(lambda: self._peers.part(url, call, self._answers.pipeline, part, read))

    def _shares(self, lacking: Mapping[int, str | None]) -> dict[str, frozenset[int]]:
        """Return the shards by the address of the server to be asked for them; nothing if there is none for one of them."""
        shares: dict[str, frozenset[int]] = {}
        for shard, host in lacking.items():
            url = self._asked(host)
            if url is None:
                return {}
            shares[url] = shares.get(url, frozenset()) | {shard}
        return shares

    async def part(self, part: parts.PartRequest, own: Callable[[View], parts.Part | parts.OpenPart | None]) -> Reply:
        """Return the result of `own` for a view of some shards as of a batch. RefusedError: 409 if this server is at another batch, 503 if a shard is missing here."""
        await self._follower.comes_to(part.batch_id, _FOLLOWED_S)
        now = self._follower.now
        if now.view is None or now.commit.batch_id != part.batch_id:
            raise RefusedError(
                409, f"batch: {part.batch_id} is asked for, and here it is {now.commit.batch_id}; ask again"
            )
        view = now.view.of_shards(part.shards)
        found = await self._threads.in_stores(partial(own, view))
        if found is None or len(view.numbers) != len(part.shards):
            raise RefusedError(503, f"shards: {part.text.partition(':')[2]} are not all here; read the tables")
        return Reply(found.json())
