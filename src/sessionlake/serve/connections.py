"""Connections: requests of bounded size that are sent in bounded time, answers that are taken in bounded time, and a share of an address."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from sessionlake.serve.refusals import RefusedError

MAX_HEAD = 131_072
"""Bytes of a request's first line and headers; of a URL the parser takes 65,535."""
HEAD_SECONDS = BODY_SECONDS = 10.0
"""How long a client may take to send them, and then the body."""
UNREAD_SECONDS = 60.0
"""How long a client may leave an answer unread."""
LINGER_SECONDS = 5.0
"""Seconds for which the rest of a request is read that was answered early: a client that still sends would not see the answer."""
_numbers = count()


class Joined:
    """A connection that sends at once all data that was written in one turn of the event loop.

    uvicorn writes an answer's head and its body separately: that takes two system calls and wakes the client twice.
    `close` is called instead of closing the connection, and may call `finish` later.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        close: Callable[["Joined"], None] = lambda joined: joined.finish(),
    ) -> None:
        self._transport, self._loop, self._close = transport, loop, close
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes, together with other writes of this turn."""
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)

    def close(self) -> None:
        """Ask for the end of the connection."""
        self._close(self)

    def finish(self) -> None:
        """Send pending bytes, and end the connection."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            self._transport.write(b"".join(parts))


class LimitedProtocol(HttpToolsProtocol):
    """HTTP whose connections are bounded, which uvicorn's are not.

    An answer to an incomplete request, for example a refusal, ends the connection.
    """

    _seen = 0
    _in_head = True
    _lingering = False
    _keeps = True
    """Whether the client keeps the connection after this request."""
    _due: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    number = 0
    """Which connection it is: later ones have higher numbers."""

    @property
    def is_waiting(self) -> bool:
        """Whether the connection is idle: the client has sent no complete head, or has its answer."""
        return not self._is_answering

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, if the address has a share left."""
        super().connection_made(cast(asyncio.Transport, Joined(transport, self.loop, self._close)))
        self.number = next(_numbers)
        if self._has_room():
            self._wait()
        else:
            self._end(503, "server: of its connections this address has its share; ask again later")

    def data_received(self, data: bytes) -> None:
        """Take received bytes, or end the connection if there are too many."""
        if self._in_head:
            self._seen += len(data)
            if self._seen > MAX_HEAD:
                self._end(431, f"headers: have more than {MAX_HEAD} bytes with the URL; ask for a shorter key")
                return
        super().data_received(data)
        # Most requests come whole.
        if self._due is None and (self._seen or not self._in_head) and not self.transport.is_closing():
            self._wait()

    def on_headers_complete(self) -> None:
        """Go on with the body."""
        super().on_headers_complete()
        self._in_head = False
        self._stop_waiting()
        self._keeps, self.cycle.keep_alive = self.cycle.keep_alive, False

    def on_message_complete(self) -> None:
        """Go on with the next request's head."""
        self._in_head, self._seen = True, 0
        self._stop_waiting()
        if self._lingering:
            self._finish()
        elif not self.cycle.response_started:
            self.cycle.keep_alive = self._keeps
        super().on_message_complete()

    def shutdown(self) -> None:
        """End the connection, as soon as its request is answered."""
        self._keeps = False
        super().shutdown()

    def pause_writing(self) -> None:
        """Wait for the client to take its answer."""
        super().pause_writing()
        self._stop_unread()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with the answer."""
        self._stop_unread()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._stop_waiting()
        self._stop_unread()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that can't be parsed."""
        del msg
        self._end(400, "request: is no HTTP, or has a URL of more than 65,535 bytes; ask for a shorter key")

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        return cycle is not None and not cycle.response_complete

    def _has_room(self) -> bool:
        """Say whether the address may have one more connection, as `Shares` does; the oldest of its others that only waits gives way."""
        limit = self.config.limit_concurrency
        if limit is None:
            return True
        every = [of for of in self.connections if isinstance(of, LimitedProtocol) and not of.transport.is_closing()]
        others = [of for of in every if of is not self and _address(of) == _address(self)]
        if len(others) < limit - len(every):
            return True
        oldest = min((of for of in others if of.is_waiting), key=lambda of: of.number, default=None)
        if oldest is None:
            return False
        oldest.transport.abort()
        return True

    def _close(self, _: Joined) -> None:
        """End the connection. If its last request is incomplete, wait until it is complete or has taken too long."""
        if self._in_head or self._lingering or self._is_answering:
            self._finish()
            return
        self._lingering = True
        self._stop_waiting()
        self._due = self.loop.call_later(LINGER_SECONDS, self._finish)

    def _wait(self) -> None:
        self._due = self.loop.call_later(HEAD_SECONDS if self._in_head else BODY_SECONDS, self._overdue)

    def _overdue(self) -> None:
        self._due = None
        if self.pipeline:
            # Nothing is read until the requests before it are answered.
            self._wait()
        elif self._in_head:
            self._end(408, f"headers: took more than {HEAD_SECONDS:.0f} seconds; ask again")
        else:
            self._end(408, f"body: took more than {BODY_SECONDS:.0f} seconds; ask again")

    def _stop_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _end(self, status: int, message: str) -> None:
        """End the connection, and say why unless an answer is under way."""
        refused = RefusedError(status, message)
        head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\ncontent-length: {len(refused.body)}\r\nconnection: close\r\n\r\n"
        if self.transport.is_closing():
            return
        if self._in_head or not self.cycle.response_started:
            self.transport.write(head.encode() + refused.body)
        self._finish()

    def _finish(self) -> None:
        cast(Joined, self.transport).finish()
        # A connection is over when all that was written is taken.
        self._stop_unread()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)


def _address(of: HttpToolsProtocol) -> str:
    return of.client[0] if of.client else ""
