"""The server of a project: its page at `/`, and each pipeline's server below `/p/NAME`."""

import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from pydantic_core import to_json

from sessionlake.config.project import Project
from sessionlake.config.serve import ServeSection, Tokens, parted
from sessionlake.errors import ConfigError
from sessionlake.project.board import Board
from sessionlake.serve.guard import ALIVE, App, Guard, Scope, Send
from sessionlake.serve.page import common_scripts, with_scripts
from sessionlake.serve.server import answering, listening, served

STATE = "/v1/project"
_BELOW = re.compile(r"/p/([A-Za-z_][A-Za-z0-9_-]*)(/.*)?")
_WEB = Path(__file__).with_name("web")


@contextmanager
def prepared(
    project: Project, section: ServeSection, tokens: Tokens
) -> Iterator[tuple[uvicorn.Server, socket.socket, str]]:
    """Yield a server of all pipelines that is ready to `run(sockets=[...])`, its socket and its address, those of the section.

    A token NAME:TOKEN of the environment is one for the paths of that pipeline alone. Raises ConfigError if it can't listen, or if
    there are only such tokens.
    """
    configs = project.configs
    own, confined = parted(tokens, configs, section.token_variable)
    if confined and not own.full:
        raise ConfigError(
            f"serve.tokens: {section.token_variable} has tokens of single pipelines only; add one without a name, which opens all"
        )
    with listening(section) as bound, ExitStack() as stack:
        apps, followers = {}, {}
        for name, config in configs.items():
            its = replace(own, full=(*own.full, *confined.get(name, ()))) if own.full else own
            apps[name], followers[name] = stack.enter_context(answering(config, its))
        board = Board(project.directory, configs, project.graph, followers)
        board.start()
        stack.callback(board.stop)
        yield served(section, bound, _routed(board, section, own, apps))


def _routed(board: Board, section: ServeSection, tokens: Tokens, apps: Mapping[str, App]) -> App:
    """Return the application: requests below /p/NAME go to that pipeline's, all others to the project's own."""
    own = Guard(_own(board), section, tokens, lambda _: None)

    async def application(scope: Scope, receive: Any, send: Send) -> None:
        found = _BELOW.fullmatch(scope["path"]) if scope["type"] == "http" else None
        app = apps.get(found[1]) if found else None
        if found is None or app is None:
            await own(scope, receive, send)
        elif found[2] is None:
            await _send(send, 307, b"", [(b"location", f"/p/{found[1]}/".encode())])
        else:
            await app(
                {**scope, "path": found[2], "raw_path": found[2].encode(), "root_path": f"/p/{found[1]}"}, receive, send
            )

    return application


def _own(board: Board) -> App:
    page, headers = _page()
    html = [
        (b"content-type", b"text/html; charset=utf-8"),
        *((name.encode(), text.encode()) for name, text in headers.items()),
    ]
    json = [(b"content-type", b"application/json")]

    async def application(scope: Scope, _receive: Any, send: Send) -> None:
        match scope["path"]:
            case "/":
                await _send(send, 200, page.encode(), html)
            case path if path == STATE:
                await _send(send, 200, to_json(board.fields()), json)
            case path if path == ALIVE:
                await _send(send, 200, b'{"alive":true}', json)
            case path:
                told = {"error": f"path: {path[:200]!r} is not served; ask /, {STATE} or /p/NAME/"}
                await _send(send, 404, to_json(told), json)

    return application


def _page() -> tuple[str, dict[str, str]]:
    """Return the page, which needs no token: it has nothing of the project, not even the names of its pipelines."""
    html = (_WEB / "project.html").read_text(encoding="utf-8")
    return with_scripts(html, common_scripts() + (_WEB / "project.js").read_text(encoding="utf-8"))


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
