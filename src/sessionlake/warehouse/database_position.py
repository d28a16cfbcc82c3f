"""The position of the table of [sink.postgres], in the database. Light: `status` reads it without Spark."""
# ruff: noqa: S608 (names of tables that the config has checked)

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sessionlake.config.config import Config
from sessionlake.config.secrets import hide, keep_hidden, reveal
from sessionlake.config.source import PostgresSink
from sessionlake.errors import ConfigError, JobError, UnreachableError, first_line
from sessionlake.extras import require_extra
from sessionlake.warehouse.sink_position import Position

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_CONNECT_S = 10


def postgres_of(config: Config) -> PostgresSink:
    """Return the section of the table; ConfigError if there is none, MissingExtraError without the driver of the database."""
    if config.sink.postgres is None:
        raise ConfigError("sink.postgres: is missing; add [sink.postgres] with url and table")
    require_extra("sink.postgres", "psycopg", "postgres")
    return config.sink.postgres


def positions_of(sink: PostgresSink) -> str:
    """Return the table, in the schema of the sink's, with the position of each table that is kept."""
    return f"{schema_of(sink)}sessionlake_positions"


def schema_of(sink: PostgresSink) -> str:
    """Return the schema of the table with a point; the empty text if it names none."""
    schema, point, _ = sink.table.rpartition(".")
    return f"{schema}{point}"


def url_of(sink: PostgresSink) -> str:
    """Return the URL with its secrets; ConfigError, without a word of it, if its password may have cut it in the wrong place.

    From then on messages hide the user and the password, which the database's client quotes without the rest.
    """
    from psycopg import Error, conninfo  # noqa: PLC0415 (an extra)

    url = reveal("sink.postgres.url", sink.url)
    parts: dict[str, Any] | None = None
    with suppress(Error, UnicodeError):
        parts = conninfo.conninfo_to_dict(url)
    if parts is None or _is_cut_wrongly(url, str(parts.get("port") or "")):
        raise ConfigError(
            "sink.postgres.url: is no URL of a database; write postgresql://user:password@host/database, with %, @, / and ? in user and password as %25, %40, %2F and %3F"
        )
    for value in (str(parts.get("password") or ""), url.partition("://")[2].rpartition("@")[0].partition(":")[2]):
        keep_hidden(value)
    keep_hidden(f'"{parts.get("user") or ""}"', '"***"')
    return url


def _is_cut_wrongly(url: str, port: str) -> bool:
    """Say if a URL has a @ in another place than behind the user and the password, or no port behind a colon."""
    place, _, path = url.partition("://")[2].partition("/")
    login, _, hosts = place.partition("@")
    return (
        "@" in hosts
        or "@" in path.partition("?")[0]
        or (place != login and re.search(r"\?\w+=", login) is not None)
        or re.fullmatch(r"[0-9,]*", port) is None
    )


@contextmanager
def connected(sink: PostgresSink, connect_s: int = _CONNECT_S) -> Iterator["Connection"]:
    """Hold a connection, and commit at the end; UnreachableError if the database does not answer, JobError for its other errors."""
    import psycopg  # noqa: PLC0415 (an extra)

    try:
        with psycopg.connect(url_of(sink), connect_timeout=connect_s, application_name="sessionlake") as connection:
            connection.execute("set time zone 'UTC'")
            connection.commit()
            yield connection
    except psycopg.OperationalError as error:
        raise UnreachableError(
            f"sink.postgres: {sink.table!r} can't be reached ({hide(first_line(error))}); see that the database runs, then run it again"
        ) from error
    except psycopg.Error as error:
        raise JobError(f"sink.postgres: {sink.table!r} can't be written ({hide(first_line(error))})") from error


def position_in(connection: "Connection", config: Config) -> Position | None:
    """Return the position of the table; None if there is no table.

    ConfigError if the table is not this pipeline's.
    """
    sink = postgres_of(config)
    there = connection.execute("select to_regclass(%s), to_regclass(%s)", [sink.table, positions_of(sink)]).fetchone()
    if there is None or there[0] is None:
        return None
    row = None
    if there[1] is not None:
        row = connection.execute(
            f"select position from {positions_of(sink)} where table_name = %s", [sink.table]
        ).fetchone()
    if row is None:
        raise ConfigError(
            f"sink.postgres.table: {sink.table!r} is a table that publish has not made; rename it, or write another name"
        )
    position = Position.read(row[0])
    if position.pipeline != config.pipeline.name:
        raise ConfigError(
            f"sink.postgres.table: {sink.table!r} is the table of pipeline {position.pipeline!r}; write another name"
        )
    return position


def position_in_database(config: Config, connect_s: int = _CONNECT_S) -> Position | None:
    """Return the table's position; None without a table, or if no sink asks for a position."""
    if config.sink.postgres is None:
        return None
    with connected(postgres_of(config), connect_s) as connection:
        return position_in(connection, config)
