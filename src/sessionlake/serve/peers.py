"""The servers of other hosts, which are asked for keys of shards whose stores they have (docs/rules.md, rules 200 to 206)."""

import time
from collections.abc import Callable, Mapping
from ssl import SSLContext, create_default_context
from typing import TypeVar
from urllib.parse import urlencode

from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from sessionlake.config.serve import ServeSection
from sessionlake.errors import ConfigError
from sessionlake.serve.dispatch import HOP, Call, Reply
from sessionlake.serve.models import WAIT_MS
from sessionlake.serve.parts import HEADER, PartRequest

HOST = b"sessionlake-host"
"""The header of an answer that names the host which gave it."""
SKIPPED_S = 5.0
"""Seconds for which a peer that did not answer is not asked again."""
_CONNECT_S = 1.0
_KEPT = 8
"""Connections to a peer that are kept open."""
_MOST = 64 << 20
"""Bytes of an answer."""
_PASSED_ON = (200, 404, 422)
"""Statuses that are a peer's answer to the question. Any other status is about the peer itself, and the tables are read instead."""
T = TypeVar("T")


class MovedError(Exception):
    """A peer is at another batch than the one that is asked for."""


class Peers:
    """Asks the servers of other hosts, for any number of threads. ConfigError if their authority can't be read."""

    def __init__(self, section: ServeSection) -> None:
        self._section = section
        answer_s = section.tables_timeout_us / 1e6 + WAIT_MS / 1000
        self._pool = PoolManager(
            maxsize=_KEPT, timeout=Timeout(connect=_CONNECT_S, read=answer_s), ssl_context=_context(section)
        )
        self._skipped: dict[str, float] = {}

    def url(self, host: str | None) -> str | None:
        """Return the address of a host's server; None if it can't be asked."""
        return None if host is None else self._section.peer_url(host)

    def is_skipped(self, url: str) -> bool:
        """Say whether a peer has recently failed to answer."""
        return self._skipped.get(url, 0.0) > time.monotonic()

    def ask(self, url: str, host: str, call: Call, pipeline: str) -> Reply | None:
        """Return a peer's answer to a call; None if it does not answer, or refuses this question."""
        try:
            status, body = self._sent(url, call, self._headers(call, pipeline))
        except (HTTPError, ValueError):
            self._skip(url)
            return None
        return Reply(body, status, ((HOST, host.encode()),)) if status in _PASSED_ON else None

    def part(self, url: str, call: Call, pipeline: str, asked: PartRequest, read: Callable[[bytes], T]) -> T | None:
        """Return a peer's part of a page, as it is read; None if it doesn't answer, MovedError if it is at another batch."""
        headers = {**self._headers(call, pipeline), HEADER.decode(): asked.text}
        try:
            status, body = self._sent(url, call, headers)
            part = read(body) if status == 200 else None
        except (HTTPError, ValueError):
            self._skip(url)
            return None
        if status == 409:
            raise MovedError
        return part

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _headers(self, call: Call, pipeline: str) -> dict[str, str]:
        headers = {HOP.decode(): pipeline}
        if self._section.peers_get_tokens and b"authorization" in call.headers:
            headers["authorization"] = call.headers[b"authorization"].decode("latin-1")
        return headers

    def _skip(self, url: str) -> None:
        self._skipped[url] = time.monotonic() + SKIPPED_S

    def _sent(self, url: str, call: Call, headers: Mapping[str, str]) -> tuple[int, bytes]:
        response = self._pool.request(
            "GET" if call.body is None else "POST",
            url + target(call),
            body=call.body,
            headers=dict(headers),
            redirect=False,
            retries=False,
            preload_content=False,
        )
        body = response.read(_MOST + 1)
        if len(body) > _MOST or response.headers.get("content-type") != "application/json":
            response.close()  # unread bytes must not become the start of the next answer
            raise HTTPError("no answer of a query server")
        response.release_conn()
        return response.status, body


def target(call: Call) -> str:
    """Return the path and the parameters of a call, to be asked of another server, which is to answer itself."""
    given = {name: value for name, value in call.given.items() if name != "redirect"}
    # Of a project's server, each pipeline is below a path of its own, on every host.
    path = call.scope.get("root_path", "") + call.path
    return f"{path}?{urlencode(given)}" if given else path


def _context(section: ServeSection) -> SSLContext | None:
    if section.peers is None or not section.peers.startswith("https://"):
        return None
    try:
        return create_default_context(cafile=section.peers_authority)
    except OSError as error:
        raise ConfigError(
            f"serve.peers_authority: {section.peers_authority!r} can't be read ({error.strerror or error}); write a PEM file of certificates"
        ) from error
