"""A client of the query server (`sessionlake serve`), of the standard library alone."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ssl import SSLContext, create_default_context
from threading import local
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urldefrag, urlencode, urlsplit

from sessionlake.errors import SessionlakeError

__all__ = ["MAX_KEYS", "Key", "QueryClient", "QueryError", "Row", "Time"]

Time = datetime | str | int
"""An aware datetime, ISO text, or whole microseconds since 1970."""
Row = dict[str, Any]
Key = str | Mapping[str, str]
"""A key's text; of a key of several columns also the columns' texts by name, as in {"tenant": "acme", "user_id": "u7"}."""
_PASSING = (429, 503)
_PATH = re.compile(r"(/p/[A-Za-z_][A-Za-z0-9_-]*)?/?")
"""The path of a server: none, or that of a pipeline of a project."""
MAX_KEYS = 1000
"""The most keys in one request."""


class QueryError(SessionlakeError):
    """The server refused a request, or could not be reached; `status` is HTTP's, None if there was no answer.

    >>> str(QueryError("key: is missing", 400))
    'key: is missing'
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class QueryClient:
    """A client of a query server; each thread has its own connection.

    Listings are iterators that ask for page after page; pages may be of different batches. `retries` is how often a request
    is sent again that the server had no time for (429, 503) or that found no connection. Times in rows are ISO texts.
    `url` may be the link with a token that `sessionlake serve` shows. Of a project's server, that of one pipeline ends in /p/NAME.
    ValueError for an invalid URL, QueryError for a request that is not answered.

    For example, with the link that `sessionlake serve` has shown; the first row asks the server:

    >>> with QueryClient("http://127.0.0.1:8787/#token=secret") as client:
    ...     sessions = client.fetch("ann")
    >>> QueryClient("127.0.0.1")
    Traceback (most recent call last):
    ValueError: url: '127.0.0.1' is no address of a server; write for example 'http://127.0.0.1:8787'
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 30,
        retries: int = 3,
        tls: SSLContext | None = None,
    ) -> None:
        found = urlsplit(url)
        path = _PATH.fullmatch(found.path)
        if found.scheme not in ("http", "https") or not found.hostname or path is None or found.query:
            raise ValueError(
                f"url: {urldefrag(url).url!r} is no address of a server; write for example 'http://127.0.0.1:8787'"
            )
        self._scheme, self._host, self._port = found.scheme, found.hostname, found.port
        self._below = path[1] or ""
        if token is None:
            token = dict(parse_qsl(found.fragment)).get("token")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout, self._retries, self._tls = timeout, retries, tls
        self._own = local()

    def fetch(self, key: Key, *, cold: bool = False, include: str | None = None) -> Iterator[Row]:
        """Yield a key's sessions, oldest first; `cold` reads the tables, which also have the sessions that stores have dropped."""
        return self.find_sessions(key, cold=cold, include=include)

    def backward_fetch(self, key: Key, *, cold: bool = False, include: str | None = None) -> Iterator[Row]:
        """Yield a key's sessions, newest first."""
        return self.backward_find_sessions(key, cold=cold, include=include)

    def find_sessions(
        self,
        key: Key,
        earliest_session_end: Time | None = None,
        latest_session_start: Time | None = None,
        *,
        cold: bool = False,
        include: str | None = None,
    ) -> Iterator[Row]:
        """Yield a key's sessions that end and start within bounds, both inclusive, oldest first."""
        return self._sessions("asc", key, earliest_session_end, latest_session_start, cold=cold, include=include)

    def backward_find_sessions(
        self,
        key: Key,
        earliest_session_end: Time | None = None,
        latest_session_start: Time | None = None,
        *,
        cold: bool = False,
        include: str | None = None,
    ) -> Iterator[Row]:
        """Yield a key's sessions that end and start within bounds, both inclusive, newest first."""
        return self._sessions("desc", key, earliest_session_end, latest_session_start, cold=cold, include=include)

    def fetch_session(self, key: Key, start: Time, *, include: str | None = None) -> Row | None:
        """Return the session of a key that starts at a time, None if there is none."""
        found = self._found("/v1/session", key=key, start=start, include=include)
        return None if found is None else found["session"]

    def find_sessions_range(
        self,
        key_from: str | None,
        key_to: str | None,
        earliest_session_end: Time | None = None,
        latest_session_start: Time | None = None,
        *,
        cold: bool = False,
    ) -> Iterator[Row]:
        """Yield the sessions of a range of keys, both bounds inclusive and None if open, by key and start."""
        bounds = {"from": earliest_session_end, "to": latest_session_start}
        return self.pages("sessions", key_from=key_from or "", key_to=key_to, cold=cold, **bounds)

    def get(self, key: Key) -> Row | None:
        """Return a keyed table's row, None if there is none."""
        found = self._found("/v1/row", key=key)
        return None if found is None else found["row"]

    def range(self, key_from: str | None, key_to: str | None) -> Iterator[Row]:
        """Yield the rows of a range of keys, both bounds inclusive and None if open, by key."""
        return self.pages("rows", key_from=key_from or "", key_to=key_to)

    def prefix_scan(self, prefix: str) -> Iterator[Row]:
        """Yield the rows of all keys that begin with a text, by key."""
        return self.pages("rows", prefix=prefix)

    def windows(self, key: Key, time_from: Time | None = None, time_to: Time | None = None) -> Iterator[Row]:
        """Yield a key's windows that overlap [`time_from`, `time_to`], oldest first."""
        bounds = {"from": time_from, "to": time_to}
        return self.pages("windows", key=key, **bounds)

    def fetch_all(self, keys: Iterable[Key], *, cold: bool = False, include: str | None = None) -> Iterator[Row]:
        """Yield the sessions of many keys, by key (as UTF-8 bytes) and start; keys without any, and named twice, change nothing."""
        return self._of_keys("sessions", keys, cold=cold, include=include)

    def get_all(self, keys: Iterable[Key]) -> Iterator[Row]:
        """Yield a keyed table's rows of many keys, by key, those that there are."""
        return self._of_keys("rows", keys)

    def metadata(self, key: Key) -> Row:
        """Return the shard of a key, the host that keeps it, and whether the server reads it there; not whether it has rows."""
        return self.ask("/v1/metadata", key=key)

    def status(self) -> Row:
        """Return how the pipeline and the server do."""
        return self.ask("/v1/status")

    def pages(self, name: str, **parameters: Any) -> Iterator[Row]:
        """Yield the rows of a list (sessions, rows, windows, joins), page after page."""
        cursor: str | None = None
        while True:
            answer = self.ask(f"/v1/{name}", **parameters, cursor=cursor)
            yield from answer[name]
            cursor = answer["cursor"]
            if cursor is None:
                return

    def ask(self, path: str, **parameters: Any) -> Row:
        """Return the answer of the server as a dictionary: the rows, and the batch that they are as of."""
        given = {name: _text(name, value) for name, value in _named(parameters) if value is not None}
        return self._answer(f"{path}?{urlencode(given)}" if given else path)

    def _of_keys(self, name: str, keys: Iterable[Key], **parameters: Any) -> Iterator[Row]:
        """Yield the rows of keys, MAX_KEYS keys in a request, page after page."""
        ordered = _distinct(keys)
        given = {name: value for name, value in parameters.items() if value is not None}
        for at in range(0, len(ordered), MAX_KEYS):
            asked: Row = {"keys": ordered[at : at + MAX_KEYS], **given}
            while True:
                answer = self._answer(f"/v1/{name}:batch", json.dumps(asked).encode())
                yield from answer[name]
                if answer["cursor"] is None:
                    break
                asked["cursor"] = answer["cursor"]

    def _answer(self, target: str, body: bytes | None = None) -> Row:
        """Return the answer to a request, which is a POST if it has a body."""
        for left in range(self._retries, -1, -1):
            status, answered, after = self._send(target, body, last=not left)
            if status == 200 or status not in (*_PASSING, None):
                break
            if left:
                time.sleep(after)
        try:
            answer = json.loads(answered)
        except ValueError:
            answer = {
                "error": f"server: {self._host!r} answered {status} without JSON; look whether the URL is a query server's"
            }
        if status != 200:
            raise QueryError(str(answer.get("error", answer)), status)
        return dict(answer)

    def close(self) -> None:
        """Close this thread's connection; it is opened again if it is needed."""
        connection: HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._own.connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sessions(self, order: Literal["asc", "desc"], key: Key, low: Any, high: Any, **more: Any) -> Iterator[Row]:
        bounds = {"from": low, "to": high}
        return self.pages("sessions", key=key, order=order, **bounds, **more)

    def _found(self, path: str, **parameters: Any) -> Row | None:
        try:
            return self.ask(path, **parameters)
        except QueryError as error:
            # A path that the server does not have is an error, for example a row asked of a pipeline of sessions.
            if error.status == 404 and not str(error).startswith("path: "):
                return None
            raise

    def _send(self, target: str, body: bytes | None, *, last: bool) -> tuple[int | None, bytes, float]:
        """Return status, body, and the seconds after which to ask again; no status if there was no connection."""
        connection = self._connection()
        try:
            connection.request("GET" if body is None else "POST", self._below + target, body, self._headers)
            response = connection.getresponse()
            return response.status, response.read(), min(float(response.getheader("Retry-After") or 1), self._timeout)
        except (OSError, HTTPException) as error:
            # The server may have closed a connection that it had not heard from for a while.
            self.close()
            if last:
                raise QueryError(
                    f"url: {self._scheme}://{self._host}:{connection.port} can't be reached ({error}); start `sessionlake serve`, or correct it"
                ) from error
            return None, b"", 0.05

    def _connection(self) -> HTTPConnection:
        connection: HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            if self._scheme == "https":
                connection = HTTPSConnection(
                    self._host, self._port, timeout=self._timeout, context=self._tls or create_default_context()
                )
            else:
                connection = HTTPConnection(self._host, self._port, timeout=self._timeout)
            self._own.connection = connection
        return connection


def _named(parameters: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield parameters by name; of a key that is given by its columns one for each."""
    for name, value in parameters.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{column}", text) for column, text in value.items())
        else:
            yield name, value


def _distinct(keys: Iterable[Key]) -> list[Key]:
    """Return keys once each, those that are texts ordered by their bytes, then those that are given by their columns."""
    given = list(keys)
    texts: list[Key] = [*sorted({key for key in given if isinstance(key, str)}, key=str.encode)]
    named = {json.dumps(dict(key), sort_keys=True): dict(key) for key in given if not isinstance(key, str)}
    return [*texts, *(named[text] for text in sorted(named))]


def _text(name: str, value: Any) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name}: {value!r} has no time zone; give an aware datetime")
        return value.isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
