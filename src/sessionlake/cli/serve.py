"""The command that serves a pipeline's rows over HTTP."""

import sys

import click

from sessionlake.cli.shared import console, one_line_errors
from sessionlake.config.load import Config, load_config
from sessionlake.extras import require_extra

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
    """Serve a pipeline until ctrl-C; ConfigError where it can't listen, MissingExtraError where a package is missing."""
    for module in ("fastapi", "uvicorn", "httptools", "uvloop"):
        require_extra("serve", module, "serve")
    from sessionlake.serve.server import prepared

    with prepared(config) as (server, bound, url):
        sys.setswitchinterval(_SWITCH_S)
        console.print(f"{config.pipeline.name} at {url}, the page and /openapi.json; ctrl-C ends it")
        server.run(sockets=[bound])
