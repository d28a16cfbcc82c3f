"""Attacks on a query server over raw sockets: during each of them others are answered."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from select import select
from threading import Event
from urllib.parse import urlsplit

import pytest

from sessionlake.client import QueryClient, QueryError
from sessionlake.serve import connections, server
from sessionlake.serve.answers import Answers
from sessionlake.serve.guard import _is_here
from sessionlake.serve.places import IN_WORK, WAITING, Shares
from tests.airflow.support import wait_for
from tests.serve.replica_support import MINUTE, Stream
from tests.serve.server_support import ask, serving

OURS, THEIRS = "a-token-of-our-own", "a-token-of-theirs"
TOKENS = {"SESSIONLAKE_SERVE_TOKENS": f"{OURS},{THEIRS}"}
WITH_OURS, WITH_THEIRS = ({"Authorization": f"Bearer {token}"} for token in (OURS, THEIRS))
SLOW_BODY = "POST /v1/sessions:batch HTTP/1.1\r\nhost: 127.0.0.1\r\n{more}content-length: 1000000\r\n\r\n{{"
BEARER = f"authorization: Bearer {THEIRS}\r\n"


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    made = Stream(tmp_path_factory.mktemp("attacks"))
    made.run([("a", n * 6 * MINUTE) for n in range(3)])
    return made


@contextmanager
def many(url: str, count: int, sent: str) -> Iterator[list[socket.socket]]:
    """Yield connections from one address on each of which something was sent."""
    place = urlsplit(url)
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((place.hostname or "", place.port or 0), 30))
            connection.sendall(sent.encode())
            found.append(connection)
        yield found


def trickle(attackers: list[socket.socket]) -> None:
    """Send one more byte on each connection that still takes it."""
    for connection in attackers:
        try:
            connection.sendall(b" ")
        except OSError:
            continue


def has_ended(connection: socket.socket) -> bool:
    """Say whether the server has ended a connection; what it sent before is read."""
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def status_of(connection: socket.socket) -> int:
    """Return the status of the answer that a connection gets."""
    return int(connection.recv(4096).split()[1])


@pytest.mark.parametrize("more", ["", "authorization: Bearer not-one-of-the-tokens\r\n"])
def test_slow_bodies_without_a_token_keep_nobody_waiting(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 40)
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.5)
    slow = SLOW_BODY.format(more=more)
    with serving(stream.config, TOKENS, requests_per_second=100_000) as url, many(url, 60, slow) as attackers:
        for _ in range(10):
            trickle(attackers)
            assert ask(url, "/v1/status", WITH_OURS)[0] == 200
            assert ask(url, "/healthz")[0] == 200
        # However long bytes come, each connection ends.
        wait_for(lambda: (trickle(attackers), all(map(has_ended, attackers)))[1], 20)


def test_a_refusal_says_that_the_connection_ends_if_its_request_is_not_whole(stream: Stream) -> None:
    with serving(stream.config, TOKENS) as url:
        for sent, ends in ((SLOW_BODY.format(more=""), True), ("GET /v1/status HTTP/1.1\r\nhost: a\r\n\r\n", False)):
            with many(url, 1, sent) as (connection,):
                head = connection.recv(4096)
                assert (head[9:12], b"connection: close" in head) == (b"401", ends)


def test_who_still_sends_sees_why_it_was_refused(stream: Stream) -> None:
    """The head is answered before the body comes: to close at once would lose the answer."""
    with serving(stream.config, TOKENS) as url, QueryClient(url, "not-one-of-the-tokens", retries=0) as client:
        for _ in range(20):
            with pytest.raises(QueryError, match=r"^authorization: ") as refused:
                list(client.fetch_all([f"{n:0>900}" for n in range(1000)]))
            assert refused.value.status == 401


def test_a_slow_body_with_a_token_ends_after_its_time(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.5)
    with serving(stream.config, TOKENS) as url, many(url, 1, SLOW_BODY.format(more=BEARER)) as (connection,):
        for _ in range(3):
            trickle([connection])
        assert b'{"error": "body: took more than' in connection.recv(4096)
        wait_for(lambda: has_ended(connection), 10)


@pytest.mark.parametrize("sent", ["", "GET / HTTP/1.1\r\n", "GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"])
def test_many_connections_of_one_address_leave_room_for_all(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    """Whether nothing is sent on them, half of a head, or a request that is answered."""
    monkeypatch.setattr(server, "CONNECTIONS", 20)
    with serving(stream.config, TOKENS) as url, many(url, 50, sent) as attackers:
        assert ask(url, "/v1/status", WITH_OURS)[0] == 200
        wait_for(lambda: sum(map(has_ended, attackers)) >= 40, 10)
        place = urlsplit(url)
        # With as many open as one address may have, another one finds half of them free.
        others = [
            socket.create_connection((place.hostname or "", place.port or 0), 30, source_address=("127.0.0.2", 0))
            for _ in range(5)
        ]
        for other in others:
            other.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
            assert status_of(other) == 200
            other.close()


def test_answers_that_nobody_reads_are_given_up(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are places in work, and more: each waits for its client until its time is over."""
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.5)
    page = "GET / HTTP/1.1\r\nhost: a\r\n\r\n"
    # More than the system's buffers hold.
    sent = page * 500
    with serving(stream.config, TOKENS, requests_per_second=100_000) as url, many(url, 3, sent) as attackers:
        wait_for(lambda: all(was_cut(attacker) for attacker in attackers), 20)
        assert ask(url, "/v1/status", WITH_OURS)[0] == 200


def was_cut(connection: socket.socket) -> bool:
    """Say whether the server has let go of a connection, without reading from it."""
    try:
        connection.sendall(b"G")
    except OSError:
        return True
    return False


def test_who_waits_for_a_batch_keeps_nobody_waiting(stream: Stream) -> None:
    waiting = f"GET /v1/status?min_batch_id=999999&wait_ms=3000 HTTP/1.1\r\nhost: a\r\n{BEARER}\r\n"
    with serving(stream.config, TOKENS, requests_per_second=100_000) as url, many(url, 150, waiting) as attackers:
        for headers in (WITH_OURS, WITH_THEIRS):
            assert ask(url, "/v1/sessions", headers, key="a")[0] == 200
            assert ask(url, "/v1/status", headers, min_batch_id=0, wait_ms=5000)[0] == 200
        # A caller alone has half of the places for those that wait; the others are refused at once.
        refused = [connection for connection in attackers if select([connection], [], [], 0)[0]]
        assert len(refused) == 150 - WAITING // 2
        assert {status_of(connection) for connection in refused} == {503}
        assert ask(url, "/v1/status", WITH_THEIRS, min_batch_id=9, wait_ms=1)[0] == 503
        assert ask(url, "/v1/status", WITH_OURS, min_batch_id=9, wait_ms=1)[0] == 412


def test_slow_bodies_with_a_token_keep_nobody_waiting(stream: Stream) -> None:
    slow = SLOW_BODY.format(more=BEARER)
    with serving(stream.config, TOKENS, requests_per_second=100_000) as url, many(url, IN_WORK + 10, slow) as attackers:
        for headers in (WITH_OURS, WITH_THEIRS):
            trickle(attackers)
            assert ask(url, "/v1/sessions", headers, key="a")[0] == 200
            assert ask(url, "/v1/sessions:batch", headers, body={"keys": ["a"]})[0] == 200


def test_a_caller_gets_a_share_of_the_work(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    free = Event()
    monkeypatch.setattr(Answers, "of_tables", lambda *_, **__: free.wait(60) and b"{}")
    slow = f"GET /v1/sessions?key=a&cold=true HTTP/1.1\r\nhost: a\r\n{BEARER}\r\n"
    with serving(stream.config, TOKENS, requests_per_second=100_000) as url:
        with many(url, IN_WORK, slow) as attackers:
            assert ask(url, "/v1/status", WITH_THEIRS)[:2] == (
                503,
                {"error": f"server: of {IN_WORK} requests in work this caller has its share; ask again later"},
            )
            assert ask(url, "/v1/status", WITH_OURS)[0] == 200
            free.set()
            answered = [status_of(connection) for connection in attackers]
            assert (answered.count(200), answered.count(503)) == (IN_WORK // 2, IN_WORK // 2)
        wait_for(lambda: ask(url, "/v1/status", WITH_THEIRS)[0] == 200, 10)


def test_shares() -> None:
    """Of 12 places one caller gets 6, a second one 3, and so on: each half of what is left."""
    shares = Shares(12)

    def taken(caller: str) -> int:
        found = 0
        while shares.take(caller):
            found += 1
        return found

    assert [taken(caller) for caller in "abcd"] == [6, 3, 2, 1]
    assert [taken(caller) for caller in "aabbcc"] == [0] * 6
    for _ in range(6):
        shares.give_back("a")
    assert [taken(caller) for caller in "da"] == [3, 2]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "{url}"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        # A site is a host without its port: other servers of this machine are of the same one.
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
    ],
)
def test_without_tokens_pages_of_other_sites_are_refused(stream: Stream, headers: dict[str, str], status: int) -> None:
    with serving(stream.config) as url:
        given = {name: value.format(url=url) for name, value in headers.items()}
        assert [ask(url, path, given)[0] for path in ("/v1/status", "/healthz", "/metrics")] == [status] * 3
        assert ask(url, "/v1/sessions:batch", given, body={"keys": ["a"]})[0] == status


def test_a_link_from_another_site_opens_the_page(stream: Stream) -> None:
    with serving(stream.config) as url:
        assert ask(url, "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})[0] == 200
        assert ask(url, "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"})[0] == 403


@pytest.mark.parametrize("host", ["[::1]", "[::1]:8787", "127.0.0.1:1", "localhost", "LocalHost:1"])
def test_names_of_this_machine(host: str) -> None:
    assert _is_here(host.encode())


@pytest.mark.parametrize(
    "host",
    ["[::1].evil.com", "[::1]:1.evil.com", "[::1", "::1]", "[::1]:", "localhost:1:2", "", "evil.com", "[127.0.0.1]x"],
)
def test_names_that_are_not_of_this_machine(host: str) -> None:
    assert not _is_here(host.encode())
