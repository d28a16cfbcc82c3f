"""What the query server answers and refuses, over HTTP, from the stores of a pipeline whose commits a test makes."""

import asyncio
import logging
import shutil
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from ssl import TLSVersion, create_default_context
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sessionlake.client import QueryClient, QueryError
from sessionlake.columnar.keys import shard_of_key
from sessionlake.engine.pending import mark
from sessionlake.errors import ConfigError
from sessionlake.serve import guard
from sessionlake.serve.answers import Answers
from sessionlake.serve.connections import MAX_HEAD, Joined
from sessionlake.serve.cursors import read_cursor, write_cursor
from sessionlake.serve.dispatch import MAX_BODY
from sessionlake.serve.guard import HEADERS, Rates
from sessionlake.serve.refusals import RefusedError
from tests.serve.replica_support import MINUTE, ROW, Stream, micros
from tests.serve.server_support import ask, serving

ODD = ["", "a", "a/b", "a\0b", "it's", "%2F?&=+ #", "é", "\U0001f600", "x" * 3000]
OLD, NEW = "an-old-token-of-ours", "a-new-token-of-ours"


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """Two batches: the second is not applied to the stores yet."""
    made = Stream(tmp_path_factory.mktemp("serve"))
    made.run([(key, n * 6 * MINUTE) for key in ODD for n in range(3)])
    made.run([(key, 30 * MINUTE) for key in ODD[::2]])
    return made


@pytest.fixture(scope="module")
def url(stream: Stream) -> Iterator[str]:
    with serving(stream.config, requests_per_second=100_000, max_rows=50) as found:
        yield found


def shown(stream: Stream, keys: list[str] | None = None) -> list[dict[str, Any]]:
    """The sessions that are to be answered, times in microseconds."""
    rows = [{**row, **{name: micros(row[name]) for name in ROW[1:3]}} for row in stream.shown()]
    return [row for row in rows if keys is None or row["session_key"] in keys]


def listed(url: str, **parameters: Any) -> list[dict[str, Any]]:
    """All pages of a listing; each but the last has a cursor."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        status, answer, _ = ask(url, "/v1/sessions", times="us", cursor=cursor, **parameters)
        assert (status, answer.get("served_by"), answer.get("batch_id")) == (200, "store", 1), answer
        assert len(answer["sessions"]) <= int(parameters.get("limit", 100))
        found += [{name: row[name] for name in ROW} for row in answer["sessions"]]
        cursor = answer["cursor"]
        if cursor is None:
            return found


@pytest.mark.parametrize("key", [*ODD, "nobody"])
def test_a_keys_sessions_page_by_page(stream: Stream, url: str, key: str) -> None:
    expected = shown(stream, [key])
    for limit in (1, 2, 50):
        assert listed(url, key=key, limit=limit) == expected
        assert listed(url, key=key, limit=limit, order="desc") == expected[::-1]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_ranges_are_inclusive_and_in_the_order_of_bytes(stream: Stream, url: str, limit: int) -> None:
    assert listed(url, key_from="", limit=limit) == shown(stream)
    between = sorted((key for key in ODD if "a" <= key <= "it's"), key=str.encode)
    assert listed(url, key_from="a", key_to="it's", limit=limit) == shown(stream, between)
    assert listed(url, prefix="a", limit=limit) == shown(stream, ["a", "a/b", "a\0b"])
    assert listed(url, key_from="b", key_to="a", limit=limit) == []


def test_times_are_inclusive(stream: Stream, url: str) -> None:
    assert [row["session_start"] for row in shown(stream, ["é"])] == [0, 6 * MINUTE, 12 * MINUTE, 30 * MINUTE]
    for low, high, starts in ((6, 6, [6]), (0, 12, [0, 6, 12]), (7, 11, []), (13, None, [30]), (None, 5, [0])):
        bounds = {"from_": None if low is None else low * MINUTE, "to": None if high is None else high * MINUTE}
        assert [row["session_start"] // MINUTE for row in listed(url, key="é", **bounds)] == starts
        assert [row["session_start"] // MINUTE for row in listed(url, prefix="é", limit=1, **bounds)] == starts
    found = ask(url, "/v1/sessions", key="é", to="1970-01-01T02:05:00+02:00")[1]
    assert [row["session_start"] for row in found["sessions"]] == ["1970-01-01T00:00:00.000000Z"]


def test_pages_end_by_bytes_and_by_what_is_looked_at(stream: Stream) -> None:
    with serving(stream.config, requests_per_second=100_000, max_bytes=1000) as url:
        assert len(ask(url, "/v1/sessions", key_from="")[1]["sessions"]) < len(shown(stream))
        assert listed(url, key_from="") == shown(stream)
    with serving(stream.config, requests_per_second=100_000, max_scan=2) as url:
        # No session is that late, and each page looks at two stored values at the most.
        first = ask(url, "/v1/sessions", key_from="", from_=31 * MINUTE)[1]
        assert (first["sessions"], first["cursor"] is None) == ([], False)
        assert listed(url, key_from="", from_=31 * MINUTE) == []
        assert listed(url, key_from="") == shown(stream)


def test_one_session(url: str) -> None:
    status, answer, _ = ask(url, "/v1/session", key="a/b", start=6 * MINUTE)
    assert (status, answer["session"]["session_start"], answer["batch_id"]) == (200, "1970-01-01T00:06:00.000000Z", 1)
    status, answer, _ = ask(url, "/v1/session", key="a/b", start=7 * MINUTE)
    assert (status, answer) == (404, {"error": "session: there is none as of batch 1; look at the key and the start"})


def test_many_keys(stream: Stream, url: str) -> None:
    """By key, page after page; keys without rows and keys that are named twice change nothing."""
    keys = [*ODD[::-1], "nobody", "a"]
    for limit in (1, 2, 3, 50):
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            asked = {"keys": keys, "limit": limit, "times": "us", **({"cursor": cursor} if cursor else {})}
            status, answer, _ = ask(url, "/v1/sessions:batch", body=asked)
            assert (status, answer["served_by"], len(answer["sessions"]) <= limit) == (200, "store", True)
            found += [{name: row[name] for name in ROW} for row in answer["sessions"]]
            cursor = answer["cursor"]
        assert found == shown(stream)
    found = ask(url, "/v1/sessions:batch", body={"keys": ["é", "a"], "times": "us", "from": 30 * MINUTE})[1]["sessions"]
    assert [(row["session_key"], row["session_start"]) for row in found] == [("é", 30 * MINUTE)]


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        ({}, 422, "keys: is missing; add it"),
        ({"keys": []}, 422, "keys: '[]' is wrong: list should have at least 1 item"),
        ({"keys": ["a"] * 1001}, 422, "keys: "),
        ({"keys": [1]}, 422, "keys.0: '1' is wrong: input should be a valid string; correct it"),
        ({"keys": ["a"], "limit": 51}, 422, "limit: 51 is more than serve.max_rows = 50; "),
        ({"keys": ["a"], "key": "a"}, 422, "key: is no parameter here; "),
        ({"keys": ["a"], "cursor": "AAAA"}, 422, "cursor: is not one of this question; "),
        (b"{", 422, "body: '{' is wrong: invalid JSON: "),
        (rb'{"keys": ["\ud800"]}', 422, "body: "),
        (b" " * (MAX_BODY + 1), 413, "body: has more than 1048576 bytes; "),
    ],
)  # fmt: skip
def test_bodies_that_are_refused(url: str, body: Any, status: int, line: str) -> None:
    found, answer, _ = ask(url, "/v1/sessions:batch", body=body)
    assert (found, answer["error"][: len(line)]) == (status, line)


def test_where_a_key_is(url: str) -> None:
    for key in ODD:
        shard = shard_of_key(key.encode(), 2)
        answer = ask(url, "/v1/metadata", key=key)[1]
        assert answer == {
            "batch_id": 1,
            "key": key,
            "shard": shard,
            "host": None,
            "local": True,
            "missing": None,
            "url": None,
        }


def test_envelope_status_and_batches(url: str) -> None:
    answer = ask(url, "/v1/sessions", key="nobody")[1]
    assert answer == {
        "batch_id": 1,
        "watermark": "1970-01-01T00:30:00.000000Z",
        "complete_from": "1969-12-31T23:50:00.000000Z",
        "served_by": "store",
        "sessions": [],
        "cursor": None,
    }
    status = ask(url, "/v1/status", times="us")[1]
    assert (status["pipeline"], status["batch_id"], status["watermark"]) == ("p", 1, 30 * MINUTE)
    assert (status["shards"], status["failure"]) == ({"all": 2, "missing": {}, "from": "stores"}, None)
    assert (status["quiet_after_us"], status["stale"]) == (30_000_000, True)  # committed in 1970
    assert [row["batch_id"] for row in ask(url, "/v1/batches")[1]["batches"]] == [0, 1]
    assert [row["batch_id"] for row in ask(url, "/v1/batches", after=0)[1]["batches"]] == [1]
    for before, limit, found in ((2, 9, [0, 1]), (1, 9, [0]), (2, 1, [1]), (0, 9, []), (-5, 9, []), (99, 9, [0, 1])):
        asked = ask(url, "/v1/batches", before=before, limit=limit)[1]["batches"]
        assert [row["batch_id"] for row in asked] == found
    assert (status["ranges"], status["max_rows"], status["key_columns"]) == (True, 50, [])
    assert "/v1/sessions" in ask(url, "/openapi.json")[1]["paths"]


def test_a_batch_is_overdue_after_three_triggers_or_the_time_of_three_batches(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    for took_s, age_s, quiet_s, stale in (
        (1, 5, 30, False),
        (1, 31, 30, True),
        (40, 31, 120, False),
        (40, 121, 120, True),
    ):
        committed_us = time.time_ns() // 1000 - age_s * 1_000_000
        stream.times_us = (committed_us - took_s * 1_000_000, committed_us)
        stream.run([("a", 0)])
        with serving(stream.config) as url:
            status = ask(url, "/v1/status")[1]
        assert (status["quiet_after_us"], status["stale"]) == (quiet_s * 1_000_000, stale)


@pytest.mark.parametrize(
    ("path", "status", "line"),
    [
        ("/v1/sessions", 422, "key: is missing; write key, or key_from, key_to or prefix for a range"),
        ("/v1/sessions?key=a&prefix=b", 422, "key: can't be used with key_from, key_to or prefix; ask for a key or for a range"),
        ("/v1/sessions?key=a&limit=51", 422, "limit: 51 is more than serve.max_rows = 50; ask for less, and go on by the cursor"),
        ("/v1/sessions?key=a&limit=0", 422, "limit: '0' is wrong: input should be greater than or equal to 1; correct it"),
        ("/v1/sessions?key=a&token=x", 422, "token: is no parameter here; remove it (/openapi.json has all)"),
        ("/v1/sessions?key=a&from=soon", 422, "from: 'soon' is no time; write '2026-01-31T12:00:00Z', or whole microseconds since 1970"),
        ("/v1/sessions?prefix=a&order=desc", 422, "order: 'desc' is for one key; ask for a key, or leave it out"),
        ("/v1/sessions?key=a&include=all", 422, "include: 'all' is not allowed; write open, quarantined, or both with a comma between"),
        ("/v1/sessions?key=a&cursor=AAAA", 422, "cursor: is not one of this question; send it with the same parameters as before, or leave it out"),
        ("/v1/sessions?key=a&min_batch_id=2", 412, "min_batch_id: 2 is not here, the last batch is 1; ask again, with wait_ms up to 5000"),
        ("/v1/session?key=a", 422, "start: is missing; add it"),
        ("/v1/rows?key=a", 404, "path: '/v1/rows' is not served by this pipeline; /openapi.json has all that are"),
    ],
)  # fmt: skip
def test_refusals_are_one_line(url: str, path: str, status: int, line: str) -> None:
    found, answer, _ = ask(url, path)
    assert (found, answer) == (status, {"error": line})


def test_a_cursor_is_of_its_question_and_of_no_other(url: str) -> None:
    cursor = ask(url, "/v1/sessions", key="a", limit=1)[1]["cursor"]
    assert ask(url, "/v1/sessions", key="a", limit=2, cursor=cursor)[0] == 200
    for others in ({"key": "b"}, {"key": "a", "order": "desc"}, {"key": "a", "from_": 1}, {"prefix": "a"}):
        assert ask(url, "/v1/sessions", **others, cursor=cursor)[0] == 422
    for at in range(len(cursor)):
        changed = cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :]
        assert ask(url, "/v1/sessions", key="a", cursor=changed)[0] in (200, 422)


@pytest.mark.parametrize("position", [("a", 1 << 63), ("a", True), ("a", "b"), ("a", 1, 2, 3, 4), (1,)])
def test_a_cursor_that_names_no_row_is_refused(position: Any) -> None:
    assert read_cursor("q", write_cursor("q", ("a", (1 << 63) - 1, 1 - (1 << 63)))) == (
        "a",
        (1 << 63) - 1,
        1 - (1 << 63),
    )
    with pytest.raises(RefusedError, match="cursor: is not one of this question"):
        read_cursor("q", write_cursor("q", position))


def test_the_header_of_a_part_means_something_from_servers_alone(url: str) -> None:
    assert ask(url, "/v1/sessions", {"sessionlake-part": "no part"}, prefix="a")[0] == 200


def test_tokens(stream: Stream) -> None:
    with serving(stream.config, {"SESSIONLAKE_SERVE_TOKENS": f"{OLD}, {NEW}"}) as url:
        for token in (OLD, NEW):
            assert ask(url, "/v1/status", {"Authorization": f"Bearer {token}"})[0] == 200
        for header in (
            {},
            {"Authorization": f"Bearer {OLD}x"},
            {"Authorization": f"Basic {OLD}"},
            {"Authorization": OLD},
        ):
            for path in ("/v1/status", "/v1/sessions?key=a", "/openapi.json", "/nothing"):
                status, answer, headers = ask(url, path, header)
                assert (status, headers["www-authenticate"], len(answer)) == (401, "Bearer", 1)
        assert [ask(url, path)[0] for path in ("/healthz", "/")] == [200, 200]
    with serving(stream.config, {"SESSIONLAKE_SERVE_TOKENS": NEW}) as url:
        assert ask(url, "/v1/status", {"Authorization": f"Bearer {OLD}"})[0] == 401


def test_a_token_for_metrics_opens_nothing_else(stream: Stream) -> None:
    given = {"SESSIONLAKE_SERVE_TOKENS": NEW, "SESSIONLAKE_SERVE_METRICS_TOKENS": OLD}
    with serving(stream.config, given) as url:
        for token, status in ((OLD, 403), (NEW, 200)):
            headers = {"Authorization": f"Bearer {token}"}
            assert [ask(url, path, headers)[0] for path in ("/metrics", "/healthz", "/")] == [200] * 3
            for path in ("/v1/status", "/v1/sessions?key=a", "/v1/open", "/openapi.json"):
                assert ask(url, path, headers)[0] == status
            assert ask(url, "/v1/sessions:batch", headers, body={"keys": ["a"]})[0] == status
        assert ask(url, "/metrics")[0] == 401
        assert ask(url, "/v1/status", {"Authorization": f"Bearer {OLD}"})[1] == {
            "error": "authorization: this token is for /metrics alone; send one of SESSIONLAKE_SERVE_TOKENS"
        }


def test_metrics_count_answers_and_refusals(stream: Stream) -> None:
    token = {"Authorization": f"Bearer {NEW}"}
    with serving(stream.config, {"SESSIONLAKE_SERVE_TOKENS": NEW}) as url:
        assert [ask(url, "/v1/sessions", given, key="a")[0] for given in (token, token, {})] == [200, 200, 401]
        assert ask(url, "/v1/sessions", token)[0] == 422
        assert ask(url, "/metrics")[0] == 401
        status, text, headers = ask(url, "/metrics", token)
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/plain")
    name = stream.config.pipeline.name
    found = {
        (
            sample.name.removeprefix("sessionlake_serve_"),
            *(value for of, value in sample.labels.items() if of != "pipeline"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["pipeline"] == name
    }
    assert {key: value for key, value in found.items() if key[0] in ("answers_total", "refusals_total")} == {
        ("answers_total", "/v1/sessions", "200"): 2,
        ("answers_total", "/v1/sessions", "422"): 1,
        ("refusals_total", "401"): 2,
    }
    assert found["answer_seconds_count", "/v1/sessions"] == 3
    assert (found["up_to_date",], found["batch_id",], found["missing_shards",]) == (1, 1, 0)
    assert found["batch_age_seconds",] > 0


def test_without_tokens_another_name_of_this_host_is_refused(url: str) -> None:
    assert ask(url, "/v1/status", {"Host": "localhost:1"})[0] == 200
    for name in ("evil.example", "127.0.0.1.evil.example", "192.0.2.1"):
        assert ask(url, "/v1/status", {"Host": name})[0] == 421


def test_rates(stream: Stream) -> None:
    now = [0.0]
    rates = Rates(2, lambda: now[0])
    assert [rates.take("a"), rates.take("a"), rates.take("a"), rates.take("b")] == [0, 0, 0.5, 0]
    now[0] = 0.5
    assert [rates.take("a"), rates.take("a")] == [0, 0.5]
    # However long one has not asked, a second's worth is all there is.
    now[0] = 100.0
    assert [rates.take("a"), rates.take("a"), rates.take("a")] == [0, 0, 0.5]
    with patch.object(guard, "CALLERS", 2):
        assert [rates.take("b"), rates.take("c")] == [0, 0]
    # Of three callers the one that asked longest ago is forgotten.
    assert [rates.take(caller) for caller in "bbcc"] == [0, 0.5, 0, 0.5]
    assert [rates.take(caller) for caller in "aa"] == [0, 0]
    with serving(stream.config, requests_per_second=1) as url:
        found = [ask(url, "/v1/status") for _ in range(20)]
        assert {status for status, _, _ in found} == {200, 429}
        assert next(headers["retry-after"] for status, _, headers in found if status == 429) == "1"
        # It is counted apart, so that nobody at the same address can have it refused.
        assert [ask(url, "/healthz")[0] for _ in range(20)].count(429) > 0
    with serving(stream.config, requests_per_second=1) as url:
        assert 429 in {ask(url, "/v1/status")[0] for _ in range(20)}
        assert ask(url, "/healthz")[0] == 200


def test_sizes_and_methods(url: str) -> None:
    assert ask(url, "/v1/sessions", key="x" * 60_000)[0] == 200
    assert ask(url, "/v1/sessions", key="x" * 70_000)[:2] == (
        400,
        {"error": "request: is no HTTP, or has a URL of more than 65,535 bytes; ask for a shorter key"},
    )
    assert ask(url, "/v1/sessions", method="POST", key="a")[0] == 405
    assert ask(url, "/v1/sessions:batch")[:2] == (405, {"error": "method: GET is not allowed; use POST"})
    assert ask(url, "/v1/rows:batch", body={"keys": ["a"]})[0] == 404
    place = urlsplit(url)
    # Heads are bounded one by one, not all that one connection sends.
    kept = HTTPConnection(place.hostname or "", place.port, timeout=60)
    for _ in range(3):
        kept.request("GET", "/healthz", headers={"x": "x" * (MAX_HEAD // 2)})
        assert kept.getresponse().read() == b'{"alive":true}'
    kept.close()
    with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        for _ in range(MAX_HEAD // 65_536 + 1):
            connection.sendall(b"x" * 65_536)
        assert connection.recv(100).startswith(b"HTTP/1.1 431 ")


def test_what_sessions_live_leaves_out_is_left_out(tmp_path: Path) -> None:
    stream = Stream(tmp_path, session={"emit": "final"}, quarantine={"max_events": 2})
    stream.run([("a", 0), ("a", 20 * MINUTE), ("b", 0), ("b", 1), ("b", 2), ("c", 20 * MINUTE), ("c", 21 * MINUTE), ("c", 22 * MINUTE)])  # fmt: skip
    # W = 22:00, gap 5, grace 10: what ended before 7:00 is final.
    with serving(stream.config) as url:

        def found(include: str | None) -> list[tuple[str, int]]:
            rows = ask(url, "/v1/sessions", key_from="", times="us", include=include)[1]["sessions"]
            return [(row["session_key"], row["session_start"] // MINUTE) for row in rows]

        assert found(None) == [("a", 0)]
        assert found("open") == [("a", 0), ("a", 20)]
        assert found("quarantined") == [("a", 0), ("b", 0)]
        assert found("open,quarantined") == [("a", 0), ("a", 20), ("b", 0), ("c", 20)]
        assert [row["session_key"] for row in ask(url, "/v1/open")[1]["sessions"]] == ["a"]


def test_the_longest_open_sessions(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    spans = {"a": range(0, 31, 5), "b": range(20, 31, 5), "c": range(25, 31, 5), "old": range(0, 11, 5)}
    stream.run([(key, minute * MINUTE) for key, minutes in spans.items() for minute in minutes])
    with serving(stream.config) as url:
        answer = ask(url, "/v1/open", limit=2)[1]
        assert ([row["session_key"] for row in answer["sessions"]], answer["complete"]) == (["a", "b"], True)
        assert [row["session_key"] for row in ask(url, "/v1/open")[1]["sessions"]] == ["a", "b", "c"]


def test_the_next_batch_is_followed_and_can_be_waited_for(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    with serving(stream.config) as url:
        status, answer, headers = ask(url, "/v1/status")
        assert (status, headers["retry-after"], list(answer)) == (503, "5", ["error"])
        with QueryClient(url, retries=0) as client:
            with pytest.raises(QueryError, match="can't be answered for yet"):
                client.status()
            for n in range(3):
                stream.run([("a", n * MINUTE)])
                answer = ask(url, "/v1/sessions", key="a", min_batch_id=n, wait_ms=5000)[1]
            assert (answer["batch_id"], answer["sessions"][0]["event_count"]) == (2, 3)


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/session"])
def test_the_first_batch_can_be_waited_for(tmp_path: Path, path: str) -> None:
    """Also by a question about a key, whose text depends on the types of the first batch."""
    stream = Stream(tmp_path)
    with serving(stream.config) as url, ThreadPoolExecutor(1) as pool:
        start = {} if path == "/v1/sessions" else {"start": 0}
        waiting = pool.submit(ask, url, path, key="a", min_batch_id=0, wait_ms=5000, **start)
        assert ask(url, "/v1/status")[0] == 503
        stream.run([("a", 0)])
        status, answer, _ = waiting.result()
        assert (status, answer["batch_id"]) == (200, 0)


def test_client(stream: Stream, url: str) -> None:
    with QueryClient(url) as client:
        rows = list(client.fetch("é"))
        assert len(rows) == 4
        assert list(client.backward_fetch("é")) == rows[::-1]
        assert list(client.find_sessions("é", 6 * MINUTE, 12 * MINUTE)) == rows[1:3]
        assert [row["session_key"] for row in client.find_sessions_range(None, None)] == [
            row["session_key"] for row in shown(stream)
        ]
        assert client.fetch_session("é", 0) == rows[0]
        assert client.fetch_session("é", 1) is None
        assert client.status()["batch_id"] == 1
        every = [row["session_key"] for row in shown(stream)]
        assert [row["session_key"] for row in client.fetch_all([*ODD, *(f"no{n}" for n in range(1500))])] == every
        assert list(client.fetch_all(["é"])) == rows
        assert (client.metadata("a")["local"], client.metadata("a")["shard"]) == (True, shard_of_key(b"a", 2))
        with pytest.raises(QueryError, match=r"^limit: 51 is more") as refused:
            next(client.pages("sessions", key="é", limit=51))
        assert refused.value.status == 422
        with pytest.raises(QueryError, match=r"^path: '/v1/row' is not served by this pipeline"):
            client.get("a")
    with pytest.raises(QueryError, match="can't be reached"):
        QueryClient("http://127.0.0.1:1", retries=0).status()
    with pytest.raises(ValueError, match="is no address of a server"):
        QueryClient("127.0.0.1")


def test_an_erased_store_is_not_read(tmp_path: Path) -> None:
    """There are no tables here to answer from instead."""
    stream = Stream(tmp_path)
    stream.run([("a", 0), ("b", 0)])
    with serving(stream.config) as url:
        assert ask(url, "/v1/sessions", key="a")[0] == 200
        assert len(ask(url, "/v1/open")[1]["sessions"]) == 2
        for shard in range(2):
            mark(Path(stream.config.driver_store_dir), shard)
        for path, parameters in (("sessions", {"key": "a"}), ("sessions", {"key_from": ""}), ("open", {})):
            status, answer, headers = ask(url, f"/v1/{path}", **parameters)
            assert (status, headers["retry-after"]) == (503, "5"), answer
        # At once, and not only with the next batch.
        missing = ask(url, "/v1/status")[1]["shards"]["missing"]
        assert missing == dict.fromkeys(("0", "1"), "its store was removed")
        assert 'sessionlake_serve_missing_shards{pipeline="p"} 2.0' in ask(url, "/metrics")[1]


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_tls(stream: Stream, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*made.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    files = {"tls_key": str(key), "tls_certificate": str(certificate)}
    with serving(stream.config, **files) as url:
        assert url.startswith("https://127.0.0.1:")
        with QueryClient(url, tls=create_default_context(cafile=certificate)) as client:
            assert client.status()["batch_id"] == 1
        old = create_default_context(cafile=certificate)
        with warnings.catch_warnings(action="ignore"):
            old.minimum_version = old.maximum_version = TLSVersion.TLSv1_1
        for wrong in (old, None):
            with QueryClient(url, tls=wrong, retries=0) as client, pytest.raises(QueryError, match="can't be reached"):
                client.status()
    with (
        pytest.raises(ConfigError, match=r"^serve\.tls_certificate: "),
        serving(stream.config, **{**files, "tls_key": str(certificate)}),
    ):
        pass


def test_what_fails_is_logged_and_said_in_one_line(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Answers, "status", lambda *_, **__: 1 // 0)
    logging.getLogger("uvicorn.error").addHandler(caplog.handler)
    status, answer, _ = ask(url, "/v1/status")
    assert (status, answer) == (500, {"error": "server: failed by a ZeroDivisionError; its log has more"})
    assert "ZeroDivisionError" in caplog.text


def test_the_description_has_parameters_and_bodies(url: str) -> None:
    paths = ask(url, "/openapi.json")[1]["paths"]
    assert {found["name"] for found in paths["/v1/session"]["get"]["parameters"]} >= {"key", "start", "times"}
    body = paths["/v1/sessions:batch"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["$ref"].endswith("/TimedKeys")
    assert paths["/v1/metadata"]["get"]["summary"]


def test_head_and_body_are_sent_together() -> None:
    """In the order in which they were written, and before the connection ends."""
    sent: list[bytes] = []

    class Transport:
        def write(self, data: bytes) -> None:
            sent.append(data)

        def close(self) -> None:
            sent.append(b"closed")

        def is_closing(self) -> bool:
            return False

    async def written() -> None:
        joined: Any = Joined(Transport(), asyncio.get_running_loop())  # type: ignore[arg-type]
        for body in (b"body", b"another"):
            joined.write(b"head ")
            joined.write(body)
            await asyncio.sleep(0)
        joined.write(b"last")
        joined.close()
        await asyncio.sleep(0)
        assert joined.is_closing() is False

    asyncio.run(written())
    assert sent == [b"head body", b"head another", b"last", b"closed"]


@pytest.mark.parametrize("path", ["/", "/v1/status", "/v1/sessions", "/nowhere", "/healthz"])
def test_whatever_the_answer_is_nobody_keeps_or_guesses_at_it(url: str, path: str) -> None:
    headers = ask(url, path)[2]
    assert {name: headers.get(name) for name, _ in HEADERS} == {
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }
