"""The way from a request to the function that answers it: paths by name, parameters by their models, errors as one line.

FastAPI describes the paths (/openapi.json) and serves paths without rows. Its routing takes several times as long as a
look-up of a key, so paths with rows bypass it.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from sessionlake.serve.keys import with_named_key
from sessionlake.serve.places import PLACE, Place
from sessionlake.serve.refusals import RefusedError, error_body, refusal

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
Answered = Callable[[str, int, float], None]
"""A function that gets an answer's path, its status and its duration in seconds."""

MAX_BODY = 1 << 20
"""Bytes of a request's body."""
HOP = b"sessionlake-hop"
"""The header of requests that another server has forwarded: they are answered here even if shards are missing."""
_MEMBERS = ("str", "dict[str,str]")
"""The types of unions in requests, as pydantic calls them."""
_LOG = logging.getLogger("uvicorn.error")


@dataclass(frozen=True)
class Call:
    """A request, except for the parameters in its model."""

    path: str
    given: Mapping[str, str]
    """The parameters of its URL."""
    scope: Scope
    body: bytes | None = None
    """The body of a POST request."""

    @property
    def place(self) -> Place:
        """Its place among requests in work (`serve.places`)."""
        place: Place = self.scope[PLACE]
        return place

    @cached_property
    def headers(self) -> Mapping[bytes, bytes]:
        """Its headers, by names in lower case."""
        return dict(self.scope["headers"])


@dataclass(frozen=True)
class Reply:
    """An answer."""

    body: bytes
    status: int = 200
    headers: Sequence[tuple[bytes, bytes]] = ()
    media_type: bytes = b"application/json"


@dataclass(frozen=True)
class Path:
    """The answer of the server at one path."""

    path: str
    asked: type[BaseModel]
    """The model of its parameters; of a path that is asked by POST, of its body."""
    answer: type[BaseModel] | None
    handler: Callable[[Any, Call], Awaitable[Reply]]
    method: str = "GET"
    wrong: Mapping[int | str, dict[str, Any]] = field(default_factory=dict)
    key_columns: Sequence[str] = ()
    """The columns of a key of several columns, each of which the parameter key.<column> may name."""


class Dispatch:
    """Answers requests of some paths, and leaves all others to another application."""

    def __init__(self, paths: Sequence[Path], rest: App, answered: Answered) -> None:
        self._paths = {(path.method, path.path): path for path in paths}
        self._rest, self._count = rest, answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = self._paths.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if path is None:
            await self._rest(scope, receive, send)
            return
        began = time.perf_counter()
        try:
            reply = await _answered(path, scope, receive)
        except ValidationError as error:
            reply = Reply(error_body(_problem(error)), 422)
        except Exception as error:  # noqa: BLE001 (each becomes one line for the client)
            refused = refusal(error)
            if refused.status == 500:
                _LOG.exception("a request failed")
            more = [(name.encode(), value.encode()) for name, value in refused.headers.items()]
            reply = Reply(refused.body, refused.status, more)
        self._count(path.path, reply.status, time.perf_counter() - began)
        headers = [
            (b"content-type", reply.media_type),
            (b"content-length", str(len(reply.body)).encode()),
            *reply.headers,
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})


async def _answered(path: Path, scope: Scope, receive: Receive) -> Reply:
    if path.method == "POST":
        async with scope[PLACE].waiting():
            body = await _body(receive)
        return await path.handler(path.asked.model_validate_json(body), Call(path.path, {}, scope, body))
    given = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    if "key" in path.asked.model_fields:
        given = with_named_key(given, path.key_columns, ranges="prefix" in path.asked.model_fields)
    return await path.handler(path.asked.model_validate(given), Call(path.path, given, scope))


async def _body(receive: Receive) -> bytes:
    """Return a request's body; RefusedError if it is too long, or ends too soon."""
    parts: list[bytes] = []
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "body: ended before it was whole; ask again")
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > MAX_BODY:
            raise RefusedError(413, f"body: has more than {MAX_BODY} bytes; ask for fewer keys at a time")
        more = message.get("more_body", False)
    return b"".join(parts)


def _problem(error: ValidationError) -> str:
    """Return the error in the parameters, in one line."""
    problem = error.errors(include_url=False)[0]
    # Pydantic adds the type of a union's member to the place, as in `keys.0.str`.
    place = [str(part) for part in problem["loc"] if part not in _MEMBERS]
    name, value = ".".join(place) or "body", problem.get("input")
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    match problem["type"]:
        case "extra_forbidden":
            return f"{name}: is no parameter here; remove it (/openapi.json has all)"
        case "missing":
            return f"{name}: is missing; add it"
    return f"{name}: {str(value)[:100]!r} is wrong: {problem['msg'][0].lower()}{problem['msg'][1:]}; correct it"
