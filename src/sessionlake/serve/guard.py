"""What stands before every request: tokens, rates and sizes. An ASGI application around another one."""

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sessionlake.config.serve import ServeSection, is_loopback
from sessionlake.serve.refused import RefusedError

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Send], Awaitable[None]]

MAX_HEAD = 131_072
"""Bytes of a request's first line and headers; of a URL the parser takes 65,535."""
MAX_AT_WORK = 64
HEAD_SECONDS = 10
"""How long a client may take to send them."""
OPEN_PATHS = ("/", "/healthz")
"""What needs no token: they have no data."""
BATCH = ":batch"
"""What paths end with that are asked by POST."""
CALLERS = 10_000
"""Callers whose rates are known; those that asked longest ago are forgotten first."""
HEADERS = [("cache-control", "no-store"), ("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer")]
"""What every answer has, whoever gives it."""


class Rates:
    """How often each caller may ask: a bucket of tokens each, that a second's worth fits into."""

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._clock = per_second, clock
        self._left: OrderedDict[bytes | str, tuple[float, float]] = OrderedDict()

    def take(self, caller: bytes | str) -> float:
        """Take one token; return 0, or the seconds after which there will be one."""
        now = self._clock()
        left, then = self._left.pop(caller, (float(self._per_second), now))
        left = min(left + (now - then) * self._per_second, self._per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._per_second
        self._left[caller] = (left if wait else left - 1, now)
        if len(self._left) > CALLERS:
            self._left.popitem(last=False)
        return wait


class Guard:
    """Refuses what may not be asked."""

    def __init__(
        self, app: App, section: ServeSection, tokens: tuple[str, ...], refused: Callable[[int], None]
    ) -> None:
        """`refused` is told the status of each request that is refused here."""
        self._app, self._section, self._told = app, section, refused
        self._tokens = [sha256(token.encode()).digest() for token in tokens]
        self._rates = Rates(section.requests_per_second)
        self._at_work = 0

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        try:
            self._admit(scope)
        except RefusedError as error:
            self._told(error.status)
            await _refuse(error, send)
            return
        self._at_work += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._at_work -= 1

    def _admit(self, scope: Scope) -> None:
        """Raise RefusedError for a request that may not be made."""
        if scope["path"] == "/healthz":
            return
        method = "POST" if scope["path"].endswith(BATCH) else "GET"
        if scope["method"] != method:
            raise RefusedError(405, f"method: {scope['method']} is not allowed; use {method}", {"allow": method})
        headers = dict(scope["headers"])
        address = (scope.get("client") or ("",))[0]
        # By another name a page of somebody else's could have the browser ask this server (DNS rebinding).
        if not self._tokens and not _is_here(headers.get(b"host", b"")):
            raise RefusedError(
                421, "host: is not this machine's loopback address; ask 127.0.0.1 or localhost, or set tokens"
            )
        caller: bytes | str = address
        known = self._token(headers.get(b"authorization", b"")) if self._tokens else None
        if known is not None:
            caller = known
        wait = self._rates.take(caller)
        if wait:
            raise RefusedError(
                429,
                f"rate: there were more than serve.requests_per_second = {self._section.requests_per_second} requests; ask again later",
                {"retry-after": "1"},
            )
        if self._tokens and known is None and scope["path"] not in OPEN_PATHS:
            raise RefusedError(
                401,
                "authorization: no token, or not one of this server's; send the header 'Authorization: Bearer TOKEN'",
                {"www-authenticate": "Bearer"},
            )
        if self._at_work >= MAX_AT_WORK:
            raise RefusedError(
                503, f"server: {MAX_AT_WORK} requests are being answered; ask again later", {"retry-after": "1"}
            )

    def _token(self, header: bytes) -> bytes | None:
        """Return the digest of the token that a header has, where it is one of ours; each is compared, whole, whatever is found."""
        scheme, _, token = header.partition(b" ")
        digest = sha256(token.strip()).digest()
        known = [hmac.compare_digest(digest, other) for other in self._tokens]
        return digest if any(known) and scheme.lower() == b"bearer" else None


class Joined:
    """A connection that sends at once what was written in one turn of the loop.

    uvicorn writes an answer's head and its body each by itself: two calls of the system, and a client that wakes up twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes, with what is written after them in this turn."""
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)

    def close(self) -> None:
        """Send what was written, and end the connection."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            self._transport.write(b"".join(parts))


class LimitedProtocol(HttpToolsProtocol):
    """HTTP whose requests have heads of bounded size, sent in bounded time: uvicorn's has no such bounds."""

    _seen = 0
    _in_head = True
    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(cast(asyncio.Transport, Joined(transport, self.loop)))
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what was sent, or end the connection where it is too much."""
        if self._in_head:
            self._seen += len(data)
            if self._seen > MAX_HEAD:
                self._end(431, f"headers: have more than {MAX_HEAD} bytes with the URL; ask for a shorter key")
                return
        super().data_received(data)
        # Most heads come whole.
        if self._in_head and self._seen and self._due is None:
            self._wait()

    def on_headers_complete(self) -> None:
        """Go on with the body."""
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Go on with the next request's head."""
        self._in_head, self._seen = True, 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Say what can't be parsed."""
        del msg
        self._end(400, "request: is no HTTP, or has a URL of more than 65,535 bytes; ask for a shorter key")

    def _wait(self) -> None:
        self._due = self.loop.call_later(
            HEAD_SECONDS, self._end, 408, f"headers: took more than {HEAD_SECONDS} seconds; ask again"
        )

    def _stop_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _end(self, status: int, message: str) -> None:
        refused = RefusedError(status, message)
        head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\ncontent-length: {len(refused.body)}\r\nconnection: close\r\n\r\n"
        if not self.transport.is_closing():
            self.transport.write(head.encode() + refused.body)
            self.transport.close()


async def _refuse(refused: RefusedError, send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(refused.body)).encode())]
    more = [(name.encode(), value.encode()) for name, value in refused.headers.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": [*headers, *more]})
    await send({"type": "http.response.body", "body": refused.body})


@lru_cache(64)
def _is_here(header: bytes) -> bool:
    """Say whether a Host header names this machine alone."""
    text = header.decode("latin-1")
    return is_loopback(text.partition("]")[0].removeprefix("[") if text.startswith("[") else text.partition(":")[0])
