"""The command that serves a pipeline's rows over HTTP."""

import os
import secrets
import sys
from dataclasses import replace
from typing import TextIO

import click

from sessionlake.cli.shared import console, one_line_errors
from sessionlake.config.load import Config, load_config
from sessionlake.config.serve import ServeSection
from sessionlake.errors import ConfigError
from sessionlake.extras import require_extra

_TOKEN_BYTES = 24
_SWITCH_S = 0.0005
"""How long a thread that follows a commit, or reads a page, may keep a request waiting; Python's own 5 ms are longer than one takes."""


@click.command("serve")
@click.argument("config_path", metavar="CONFIG")
@click.option("--host", help="Address to listen on.  [default: the config's serve.host, 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free one.  [default: serve.port, 8787]")
@one_line_errors
def serve_command(config_path: str, host: str | None, port: int | None) -> None:
    """Answer queries over HTTP from the stores of this host, and show a page of the stream, until ctrl-C."""
    config = load_config(config_path)
    config = config.model_copy(update={"serve": config.serve.on(host, port)})
    serve(config)


def serve(config: Config) -> None:
    """Serve a pipeline until ctrl-C; ConfigError if it can't listen, MissingExtraError if a package is missing."""
    for module in ("fastapi", "uvicorn", "httptools", "uvloop"):
        require_extra("serve", module, "serve")
    from sessionlake.serve.server import prepared

    tokens, terminal = config.serve.tokens_in(os.environ), None
    if config.serve.tokens and not tokens.full:
        terminal = _terminal(config.serve)
        tokens = replace(tokens, full=(secrets.token_hex(_TOKEN_BYTES),))
    with prepared(config, tokens) as (server, bound, url):
        sys.setswitchinterval(_SWITCH_S)
        console.print(f"{config.pipeline.name} at {url}, the page and /openapi.json; ctrl-C ends it")
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
