"""The URL of [sink.postgres] is in no message, however its password cuts it."""

from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config import secrets
from sessionlake.config.secrets import hide
from sessionlake.config.source import PostgresSink
from sessionlake.errors import ConfigError
from sessionlake.preflight.sinks import sink_problems
from sessionlake.warehouse.database_position import connected, url_of
from tests.support import make_config

conninfo = pytest.importorskip("psycopg").conninfo
TOLD = "sink.postgres.url: is no URL of a database; write postgresql://user:password@host/database, with %, @"


@pytest.fixture(autouse=True)
def _forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_revealed", {})


def sink(url: str, monkeypatch: pytest.MonkeyPatch) -> PostgresSink:
    monkeypatch.setenv("PGURL", url)
    return PostgresSink(url="${env:PGURL}", table="t")


@pytest.mark.parametrize(
    "password",
    [
        "100%sure-secret",
        "s3cr@t-p4ss",
        "secr/t-p4ss",
        "12/34567",
        "12/3?4567",
        "p@1/x",
        "%zz%",
        "a@b@c",
        "%00",
        "%a1",
        "\udc80",
    ],
)
def test_a_password_that_cuts_the_url_is_told_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    made = sink(f"postgresql://loader:{password}@127.0.0.1:1/ana", monkeypatch)
    with pytest.raises(ConfigError) as raised, connected(made):
        pass
    assert str(raised.value).startswith(TOLD)
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
    (problem,) = sink_problems(make_config(tmp_path, sink={"postgres": {"url": made.url, "table": "t"}}))
    assert str(problem).startswith(TOLD)
    assert password not in str(problem).partition("; write")[0]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@/postgres?host=/tmp/x",
        "postgresql://a,b:5433/d?user=me@x",
        "postgresql://me:p#x:y@[::1]:1/d",
        "postgresql://me:a?b@127.0.0.1:1,127.0.0.2:2/d",
        "host=127.0.0.1 password=abc@def",
        "postgresql://",
    ],
)
def test_urls_that_are_right_are_taken(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    assert url_of(sink(url, monkeypatch)) == url


@given(st.text("ab1@%/?:#[]=&\\'\"+,", min_size=1, max_size=8))
def test_a_url_that_is_taken_is_cut_where_its_author_meant(password: str) -> None:
    for written, meant in ((password, unquote(password)), (quote(password, safe=""), password)):
        url = f"postgresql://loader:{written}@127.0.0.1:1/ana"
        try:
            url_of(PostgresSink(url=url, table="t"))
        except ConfigError:
            assert written == password != quote(password, safe="")
        else:
            parts = conninfo.conninfo_to_dict(url)
            assert parts == {"user": "loader", "password": meant, "host": "127.0.0.1", "port": "1", "dbname": "ana"}


def test_user_and_password_are_hidden_where_others_quote_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    url_of(sink("postgresql://loader:s3cr%40t-p4ss@127.0.0.1/ana", monkeypatch))
    assert hide('for user "loader" with s3cr@t-p4ss or s3cr%40t-p4ss') == 'for user "***" with *** or ***'
