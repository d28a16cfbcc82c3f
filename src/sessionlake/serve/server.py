"""The query server as a process: its socket, TLS, and the application behind its guard."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from sessionlake.config.load import Config
from sessionlake.config.serve import ServeSection, Tokens
from sessionlake.errors import ConfigError
from sessionlake.serve.app import Server
from sessionlake.serve.connections import LimitedProtocol
from sessionlake.serve.follower import Follower
from sessionlake.serve.guard import HEADERS, App, Guard

CONNECTIONS = 512
_BACKLOG = 128
_SHUTDOWN_S = 3


@contextmanager
def prepared(config: Config, tokens: Tokens) -> Iterator[tuple[uvicorn.Server, socket.socket, str]]:
    """Yield a server that is ready to `run(sockets=[...])`, its socket and its address; ConfigError if it can't listen.

    Without tokens it asks for none. The pipeline is followed from then on, also before it has a batch.
    """
    with listening(config.serve) as bound, answering(config, tokens) as (application, _):
        yield served(config.serve, bound, application)


@contextmanager
def answering(config: Config, tokens: Tokens) -> Iterator[tuple[Guard, Follower]]:
    """Yield the application of a pipeline behind its guard, and what follows the pipeline from then on."""
    follower = Follower(config)
    server = Server(config, follower)
    try:
        follower.start()
        yield Guard(server.application(), config.serve, tokens, server.meters.refused), follower
    finally:
        server.close()
        follower.stop()


@contextmanager
def listening(section: ServeSection) -> Iterator[socket.socket]:
    """Yield a socket that listens at the section's address; ConfigError if it can't."""
    bound = _listening(section)
    try:
        yield bound
    finally:
        bound.close()


def served(section: ServeSection, bound: socket.socket, application: App) -> tuple[uvicorn.Server, socket.socket, str]:
    """Return a server of an application that is ready to `run(sockets=[...])`, its socket and its address."""
    settings = uvicorn.Config(
        application,
        http=LimitedProtocol,
        loop="uvloop",
        ws="none",
        lifespan="off",
        access_log=False,  # a URL has keys
        log_level="warning",
        server_header=False,
        headers=HEADERS,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        ssl_certfile=section.tls_certificate,
        ssl_keyfile=section.tls_key,
    )
    try:
        settings.load()
    except OSError as error:
        raise ConfigError(
            f"serve.tls_certificate: {section.tls_certificate!r} can't be used with serve.tls_key ({error.strerror or error}); "
            "write PEM files that belong together and this user may read"
        ) from error
    host = f"[{section.host}]" if ":" in section.host else section.host
    return (
        uvicorn.Server(settings),
        bound,
        f"{'https' if section.tls_key else 'http'}://{host}:{bound.getsockname()[1]}",
    )


def _listening(section: ServeSection) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(section.host, section.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            if sys.platform != "win32":
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(_BACKLOG)
        except BaseException:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"serve.port: {section.host}:{section.port} can't be listened on ({error.strerror or error}); stop the process that uses it, or choose another"
        ) from error
    return bound
