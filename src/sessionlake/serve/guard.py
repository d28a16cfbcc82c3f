"""The checks before every request: tokens, rates and places. An ASGI application around another one."""

import hmac
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from sessionlake.config.serve import ServeSection, Tokens, is_loopback
from sessionlake.serve.places import PLACE, Caller, Place, Places
from sessionlake.serve.refusals import RefusedError

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Send], Awaitable[None]]

ALIVE = "/healthz"
OPEN_PATHS = ("/", ALIVE)
"""Paths that need no token: they show no data."""
METRICS_PATHS = (*OPEN_PATHS, "/metrics")
"""Paths that a token for metrics opens."""
BATCH = ":batch"
"""The end of paths that take POST requests."""
CALLERS = 10_000
"""Callers whose rates are known; those that asked longest ago are forgotten first."""
HEADERS = [("cache-control", "no-store"), ("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer")]
"""Headers of every answer, also of errors."""
_HOST = re.compile(r"(\[(?P<address>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(:[0-9]{1,5})?")


class Rates:
    """Limits the requests of each caller by a token bucket, which holds the tokens of one second."""

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._clock = per_second, clock
        self._left: OrderedDict[Caller, tuple[float, float]] = OrderedDict()

    def take(self, caller: Caller) -> float:
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
    """Refuses requests that are not allowed."""

    def __init__(self, app: App, section: ServeSection, tokens: Tokens, refused: Callable[[int], None]) -> None:
        """`refused` gets the status of each request that is refused here."""
        self._app, self._section, self._count = app, section, refused
        self._full = frozenset(map(_digest, tokens.full))
        self._tokens = [*self._full, *map(_digest, tokens.metrics)]
        self._rates = Rates(section.requests_per_second)
        self._places = Places()

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        try:
            place = self._admit(scope)
        except RefusedError as error:
            self._count(error.status)
            await _refuse(error, send)
            return
        scope[PLACE] = place
        try:
            await self._app(scope, receive, send)
        finally:
            place.leave()

    def _admit(self, scope: Scope) -> Place:
        """Return the place of a request; RefusedError for a request that is not allowed."""
        headers, path = dict(scope["headers"]), scope["path"]
        address = (scope.get("client") or ("",))[0]
        known = self._token(headers.get(b"authorization", b"")) if self._tokens else None
        caller: Caller = address if known is None else known
        # Who only asks whether the process is alive is counted apart: nobody at the same address can take that away.
        self._check_rate(f"{address} {path}" if path == ALIVE else caller)
        if not self._tokens:
            _check_origin(scope, headers)
        method = "POST" if path.endswith(BATCH) else "GET"
        if scope["method"] != method:
            raise RefusedError(405, f"method: {scope['method']} is not allowed; use {method}", {"allow": method})
        if self._tokens and known is None and path not in OPEN_PATHS:
            raise RefusedError(
                401,
                "authorization: no token, or not one of this server's; send the header 'Authorization: Bearer TOKEN'",
                {"www-authenticate": "Bearer"},
            )
        if known is not None and known not in self._full and path not in METRICS_PATHS:
            raise RefusedError(
                403,
                f"authorization: this token is for /metrics alone; send one of {self._section.token_variable}",
            )
        return Place(self._places, caller, costs=path != ALIVE)

    def _check_rate(self, caller: Caller) -> None:
        if self._rates.take(caller):
            raise RefusedError(
                429,
                f"rate: there were more than serve.requests_per_second = {self._section.requests_per_second} requests; ask again later",
                {"retry-after": "1"},
            )

    def _token(self, header: bytes) -> bytes | None:
        """Return the digest of the token in a header, if it is a valid one. Every token is compared whole, so the time reveals nothing."""
        scheme, _, token = header.partition(b" ")
        digest = _digest(token.strip())
        known = [hmac.compare_digest(digest, other) for other in self._tokens]
        return digest if any(known) and scheme.lower() == b"bearer" else None


async def _refuse(refused: RefusedError, send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(refused.body)).encode())]
    more = [(name.encode(), value.encode()) for name, value in refused.headers.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": [*headers, *more]})
    await send({"type": "http.response.body", "body": refused.body})


def _digest(token: str | bytes) -> bytes:
    return sha256(token.encode() if isinstance(token, str) else token).digest()


def _check_origin(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Raise RefusedError if a page of another site sends a request to a server that needs no token."""
    host = headers.get(b"host", b"")
    # By another name of this host the browser would take this server for the one that such a page came from (DNS rebinding).
    if not _is_here(host):
        raise RefusedError(
            421,
            "host: is not this machine's loopback address; ask 127.0.0.1 or localhost, or remove serve.tokens = false",
        )
    origin = headers.get(b"origin")
    # Browsers say who asks; nobody else does. To open the page by a link from elsewhere is not to read it.
    follows_link = scope["path"] == "/" and headers.get(b"sec-fetch-mode") == b"navigate"
    is_foreign = headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none")
    if (is_foreign and not follows_link) or (origin is not None and origin.partition(b"://")[2] != host):
        raise RefusedError(
            403, "origin: is a page of another site; ask from the page of this server, or remove serve.tokens = false"
        )


@lru_cache(64)
def _is_here(header: bytes) -> bool:
    """Say whether a Host header names this machine alone."""
    found = _HOST.fullmatch(header.decode("latin-1"))
    return found is not None and is_loopback(found["address"] or found["name"])
