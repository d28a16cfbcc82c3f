"""The command that serves a pipeline's rows over HTTP."""

import os
import secrets
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

import click

from sessionlake.cli.operands import EITHER, config_argument
from sessionlake.cli.progress import progress
from sessionlake.cli.shared import console, one_line_errors
from sessionlake.config.load import Config, load_config
from sessionlake.config.project import Project, is_project, load_project
from sessionlake.config.serve import ServeSection, Tokens, parted
from sessionlake.errors import ConfigError
from sessionlake.extras import require_extra

if TYPE_CHECKING:
    import socket

    import uvicorn

_PREPARING = "opening stores and tables"
_TOKEN_BYTES = 24
_SWITCH_S = 0.0005
"""How long a thread that follows a commit, or reads a page, may keep a request waiting; Python's own 5 ms are longer than one takes."""


@click.command("serve")
@config_argument(EITHER)
@click.option("--host", help="Address to listen on.  [default: the config's serve.host, 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free one.  [default: serve.port, 8787]")
@one_line_errors
def serve_command(config_path: str, host: str | None, port: int | None) -> None:
    """Answer queries over HTTP from the stores of this host, and show a page of the stream, until ctrl-C.

    Of a project, a directory with a project.toml, the page shows all pipelines, and each has its own below /p/NAME/.
    """
    if is_project(config_path):
        project = load_project(config_path)
        serve_project(project, next(iter(project.configs.values())).serve.on(host, port))
        return
    config = load_config(config_path)
    config = config.model_copy(update={"serve": config.serve.on(host, port)})
    serve(config)


def serve(config: Config) -> None:
    """Serve a pipeline until ctrl-C; ConfigError if it can't listen, MissingExtraError if a package is missing."""
    _require_extras()
    tokens, terminal = _tokens(config.serve)
    own, its = parted(tokens, [config.pipeline.name], config.serve.token_variable)
    tokens = replace(own, full=(*own.full, *its.get(config.pipeline.name, ())))
    with ExitStack() as stack:
        with progress() as shown:
            shown.step(_PREPARING)
            from sessionlake.serve.server import prepared

            server, bound, url = stack.enter_context(prepared(config, tokens))
        _run(server, bound, url, f"{config.pipeline.name} at {url}, the page and /openapi.json", tokens, terminal)


def serve_project(project: Project, section: ServeSection) -> None:
    """Serve all pipelines of a project until ctrl-C, at the address of a section; errors as of `serve`."""
    _require_extras()
    tokens, terminal = _tokens(section)
    with ExitStack() as stack:
        with progress() as shown:
            shown.step(_PREPARING)
            from sessionlake.project.server import prepared

            server, bound, url = stack.enter_context(prepared(project, section, tokens))
        told = f"{len(project.members)} pipelines at {url}, each at {url}/p/NAME/"
        _run(server, bound, url, told, tokens, terminal)


def _require_extras() -> None:
    for module in ("fastapi", "uvicorn", "httptools", "uvloop"):
        require_extra("serve", module, "serve")


def _tokens(section: ServeSection) -> tuple[Tokens, TextIO | None]:
    """Return the tokens of the environment; if there is none, one for this run, and the stream that shows it."""
    tokens = section.tokens_in(os.environ)
    if not section.tokens or tokens.full:
        return tokens, None
    terminal = _terminal(section)
    return replace(tokens, full=(secrets.token_hex(_TOKEN_BYTES),)), terminal


def _run(
    server: "uvicorn.Server", bound: "socket.socket", url: str, told: str, tokens: Tokens, terminal: TextIO | None
) -> None:
    sys.setswitchinterval(_SWITCH_S)
    console.print(f"{told}; ctrl-C ends it")
    if terminal is not None:
        # A browser sends the part behind the # to no server.
        click.echo(f"the page, with a token for this run: {url}/#token={tokens.full[0]}", file=terminal)
    server.run(sockets=[bound])


def _terminal(section: ServeSection) -> TextIO:
    """Return the stream that shows a token to the user and is no log; ConfigError if there is none."""
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            return stream
    raise ConfigError(
        f"serve.tokens: {section.token_variable} holds no token, and there is no terminal to show one that is made for the run; "
        "set it, or write tokens = false to let all accounts of this machine read"
    )
