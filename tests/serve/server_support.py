"""A query server in this process, asked over real sockets."""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPConnection
from threading import Thread
from typing import Any
from urllib.parse import urlencode, urlsplit

from sessionlake.config.load import Config
from sessionlake.serve.server import prepared

Answer = tuple[int, Any, dict[str, str]]


@contextmanager
def serving(config: Config, environment: Mapping[str, str] | None = None, **section: Any) -> Iterator[str]:
    """Yield the address of a server, which asks for no token unless the environment holds one; `section` changes [serve]."""
    changed = config.serve.model_copy(update={"port": 0, "tokens": bool(environment), **section})
    changed.check()
    tokens = changed.tokens_in(environment or {})
    with running(prepared(config.model_copy(update={"serve": changed}), tokens)) as url:
        yield url


@contextmanager
def running(served: AbstractContextManager[tuple[Any, Any, str]]) -> Iterator[str]:
    """Run a prepared server in a thread; yield its address."""
    with served as (server, bound, url):
        thread = Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()


def ask(
    url: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
    body: Any = None,
    **parameters: Any,
) -> Answer:
    """Return status, JSON (text where it is none) and headers; parameters are quoted, those of None left out. A body is sent by POST."""
    given = {name.rstrip("_"): value for name, value in parameters.items() if value is not None}
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        target = f"{path}?{urlencode(given)}" if given else path
        connection.request(method if sent is None else "POST", target, sent, dict(headers or {}))
        answer = connection.getresponse()
        body = answer.read().decode()
        found = {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()
    return answer.status, json.loads(body) if found.get("content-type") == "application/json" else body, found
