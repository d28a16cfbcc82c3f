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
from sessionlake.serve.guard import HEADERS, Guard

CONNECTIONS = 512
_BACKLOG = 128
_SHUTDOWN_S = 3


@contextmanager
def prepared(config: Config, tokens: Tokens) -> Iterator[tuple[uvicorn.Server, socket.socket, str]]:
    """Yield a server that is ready to `run(sockets=[...])`, its socket and its address; ConfigError if it can't listen.

    Without tokens it asks for none. The pipeline is followed from then on, also before it has a batch.
    """
    section = config.serve
    bound = _listening(section)
    follower = Follower(config)
    application = Server(config, follower)
    try:
        follower.start()
        settings = uvicorn.Config(
            Guard(application.application(), section, tokens, application.meters.refused),
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
        yield (
            uvicorn.Server(settings),
            bound,
            f"{'https' if section.tls_key else 'http'}://{host}:{bound.getsockname()[1]}",
        )
    finally:
        bound.close()
        application.close()
        follower.stop()


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
