"""Servers on several hosts: keys of another host's shards are asked of its server, once, and answered from the tables where that fails."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from sessionlake.config.load import Config
from sessionlake.config.serve import ServeSection
from sessionlake.errors import ConfigError
from sessionlake.serve.dispatch import Call
from sessionlake.serve.peers import MovedError, Peers
from tests.serve.replica_support import MINUTE, Stream
from tests.serve.server_support import ask, serving

HOSTS = ("127.0.0.1", "127.0.0.2")
KEYS = ["a", "b", "c", "a/b &=+", "\U0001f600"]


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind((HOSTS[0], 0))
        return int(bound.getsockname()[1])


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """A pipeline whose shard n ran on the host n, as its commit says, and of which each host has one store."""
    made = Stream(tmp_path_factory.mktemp("peers"), places=HOSTS)
    made.run([(key, n * 6 * MINUTE) for key in KEYS for n in range(3)])
    return made


def on_host(stream: Stream, shard: int) -> Config:
    """Return the pipeline's config on the host of one shard, whose store alone is there."""
    store = stream.root / f"host{shard}"
    if not store.exists():
        shutil.copytree(stream.root / "store", store)
        shutil.rmtree(store / "p" / str(1 - shard))
        shutil.rmtree(store / "p" / f"{1 - shard}.pending")
    pipeline = stream.config.pipeline.model_copy(update={"store": str(store)})
    return stream.config.model_copy(update={"pipeline": pipeline})


@contextmanager
def hosts(stream: Stream, *shards: int, **section: Any) -> Iterator[list[str]]:
    """Yield the addresses of the servers of some hosts, all at one port."""
    port = free_port()
    peers = {"peers": f"http://{{host}}:{port}", "requests_per_second": 100_000, **section}
    with ExitStack() as stack:
        yield [
            stack.enter_context(serving(on_host(stream, n), host=HOSTS[n], **{**peers, "port": port})) for n in shards
        ]


def test_a_key_is_answered_by_its_owner_whoever_is_asked(stream: Stream) -> None:
    with hosts(stream, 0, 1) as urls:
        for key in KEYS:
            place = ask(urls[0], "/v1/metadata", key=key)[1]
            owner = place["shard"]
            assert (place["host"], place["local"], place["missing"] is None) == (HOSTS[owner], owner == 0, owner == 0)
            assert place["url"] == urls[owner]
            for path, more in (
                ("/v1/sessions", {"limit": 2}),
                ("/v1/session", {"start": 0}),
                ("/v1/session", {"start": 1}),
            ):
                own, other = (ask(urls[n], path, key=key, **more) for n in (owner, 1 - owner))
                assert own[:2] == other[:2]
                assert (own[0], "sessionlake-host" in own[2]) == (404 if more == {"start": 1} else 200, False)
                assert other[2]["sessionlake-host"] == HOSTS[owner]
            cursor = ask(urls[owner], "/v1/sessions", key=key, limit=2)[1]["cursor"]
            rest = ask(urls[1 - owner], "/v1/sessions", key=key, limit=2, cursor=cursor)[1]
            assert ([row["session_start"][14:16] for row in rest["sessions"]], rest["cursor"]) == (["12"], None)


@pytest.mark.parametrize("section", [{}, {"max_scan": 2}, {"max_bytes": 1000}])
def test_ranges_and_many_keys_are_asked_of_all_hosts(stream: Stream, section: dict[str, int]) -> None:
    questions: list[dict[str, Any]] = [
        *({"key_from": "", "limit": limit} for limit in (1, 2, 4, 50)),
        {"key_from": "", "limit": 2, "from_": 7 * MINUTE, "times": "us"},
        {"prefix": "a", "limit": 3},
        *({"body": {"keys": [*KEYS, "nobody"], "limit": limit}} for limit in (1, 2, 50)),
        {"body": {"keys": ["c"], "times": "us"}},
    ]
    with serving(stream.config, requests_per_second=100_000) as alone, hosts(stream, 0, 1, **section) as urls:
        for question in questions:
            expected = pages(alone, question)
            for url in urls:
                found = pages(url, question)
                assert [row for page in found for row in page["sessions"]] == [
                    row for page in expected for row in page["sessions"]
                ]
                # What is looked at, and how many bytes there are, each host counts by itself.
                assert section or found == expected


def pages(url: str, question: dict[str, Any]) -> list[dict[str, Any]]:
    """All pages of a listing, each from stores."""
    found: list[dict[str, Any]] = []
    cursor = None
    while cursor is not None or not found:
        if "body" in question:
            body = {**question["body"], **({"cursor": cursor} if cursor else {})}
            status, answer, _ = ask(url, "/v1/sessions:batch", body=body)
        else:
            status, answer, _ = ask(url, "/v1/sessions", **question, cursor=cursor)
        assert (status, answer.get("served_by")) == (200, "store"), answer
        found.append(answer)
        cursor = answer["cursor"]
    return found


def test_the_longest_open_sessions_are_those_of_all_hosts(tmp_path: Path) -> None:
    made = Stream(tmp_path, places=HOSTS)
    # Of different lengths, of equal ones that began at different times and at the same one; one is over.
    spans = {
        "a": (0, 31),
        "b": (20, 31),
        "c": (15, 26),
        "d": (20, 31),
        "e": (30, 31),
        "\U0001f600": (20, 31),
        "over": (0, 11),
    }
    made.run([(key, minute * MINUTE) for key, span in spans.items() for minute in range(*span, 5)])
    with serving(made.config, requests_per_second=100_000) as alone, hosts(made, 0, 1) as urls:
        where = {key: ask(alone, "/v1/metadata", key=key)[1]["shard"] for key in spans}
        assert {where[key] for key in "abcd"} == {0, 1}
        every = ask(alone, "/v1/open")[1]
        assert [row["session_key"] for row in every["sessions"]] == ["a", "c", "b", "d", "\U0001f600", "e"]
        for question in ({}, {"limit": 1}, {"limit": 3}, {"limit": 4, "times": "us"}):
            expected = ask(alone, "/v1/open", **question)
            assert (expected[0], expected[1]["served_by"], expected[1]["complete"]) == (200, "store", True)
            for url in urls:
                assert ask(url, "/v1/open", **question)[:2] == expected[:2]
        # What another server asks for is of the shards that it names alone.
        headers = {"Sessionlake-Hop": "p/id", "Sessionlake-Part": "0:1"}
        rows, complete = ask(urls[1], "/v1/open", headers)[1]
        assert ([row[2] for row in rows], complete) == (
            [row["session_key"] for row in every["sessions"] if where[row["session_key"]] == 1],
            True,
        )
    with hosts(made, 0, 1, max_scan=1) as urls:
        assert [ask(url, "/v1/open")[1]["complete"] for url in urls] == [False, False]
    # Without the other host there are the tables, which are not there.
    with hosts(made, 0) as (url,):
        assert ask(url, "/v1/open")[0] == 503


def test_a_host_at_another_batch_is_asked_again(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    part, moves, asked = Peers.part, [0], []

    def moved(*given: Any) -> Any:
        asked.append(given)
        if len(asked) < moves[0]:
            raise MovedError
        return part(*given)

    monkeypatch.setattr(Peers, "part", moved)
    with hosts(stream, 0, 1) as urls:
        for moves[0], status in ((3, 200), (4, 503)):
            asked.clear()
            found, answer, headers = ask(urls[0], "/v1/sessions", key_from="")
            assert (found, len(asked), headers.get("retry-after")) == (status, 3, None if status == 200 else "1"), (
                answer
            )
        # The other side of it.
        for header, status in (("7:1", 409), ("0:0", 503), ("0:9", 503), ("0", 422), ("0:x", 422), ("0:1", 200)):
            headers = {"Sessionlake-Hop": "p/id", "Sessionlake-Part": header}
            assert ask(urls[1], "/v1/sessions", headers, key_from="")[0] == status
    # Without the other host there are the tables, which are not there.
    with hosts(stream, 0) as (url,):
        assert ask(url, "/v1/sessions", key_from="")[0] == 503


def test_it_redirects_where_that_is_asked_for(stream: Stream) -> None:
    with hosts(stream, 0, 1) as urls:
        for key in KEYS:
            owner = ask(urls[0], "/v1/metadata", key=key)[1]["shard"]
            status, _, headers = ask(urls[1 - owner], "/v1/sessions", key=key, limit=2, redirect="true")
            assert status == 307
            place, _, query = headers["location"].partition("?")
            assert place == f"{urls[owner]}/v1/sessions"
            assert "redirect" not in query
            assert ask(urls[owner], f"/v1/sessions?{query}")[1] == ask(urls[owner], "/v1/sessions", key=key, limit=2)[1]
            assert ask(urls[owner], "/v1/sessions", key=key, limit=2, redirect="true")[0] == 200


def test_what_was_sent_on_is_not_sent_on_again(stream: Stream) -> None:
    """There are no tables here: what goes to them is a 503."""
    with hosts(stream, 0, 1) as urls:
        key = next(key for key in KEYS if ask(urls[0], "/v1/metadata", key=key)[1]["shard"] == 1)
        assert ask(urls[0], "/v1/sessions", {"Sessionlake-Hop": "p/id"}, key=key)[0] == 503
        status, answer, _ = ask(urls[1], "/v1/sessions", {"Sessionlake-Hop": "p/other"}, key=key)
        assert (status, answer["error"].partition(":")[0]) == (421, "sessionlake-hop")
    # Both hosts have lost the store of that key: neither asks the other without end.
    lost = stream.config.pipeline.model_copy(update={"store": str(on_host(stream, 0).pipeline.store)})
    port = free_port()
    section = {"peers": f"http://{{host}}:{port}", "port": port}
    both = stream.config.model_copy(update={"pipeline": lost})
    with serving(both, host=HOSTS[0], **section) as one, serving(both, host=HOSTS[1], **section):
        assert ask(one, "/v1/sessions", key=key)[0] == 503


def test_a_peer_that_does_not_answer_is_not_asked_for_a_while(stream: Stream) -> None:
    """There are no tables here: what goes to them is a 503."""
    with hosts(stream, 0) as (url,):
        key = next(key for key in KEYS if ask(url, "/v1/metadata", key=key)[1]["shard"] == 1)
        # Nothing listens there; the next that is asked is something else than a query server.
        assert ask(url, "/v1/sessions", key=key)[0] == 503
    with hosts(stream, 0) as (url,), socket.create_server((HOSTS[1], urlsplit(url).port or 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi")

        thread = Thread(target=answer)
        thread.start()
        status, said, headers = ask(url, "/v1/sessions", key=key)
        thread.join()
        assert (status, "sessionlake-host" in headers) == (503, False), said
        other.settimeout(0)
        assert ask(url, "/v1/sessions", key=key)[0] == 503
        with pytest.raises(BlockingIOError):
            other.accept()


def test_tokens_go_to_peers(stream: Stream) -> None:
    token = "a-token-of-all-servers"  # noqa: S105 (of this test alone)
    port = free_port()
    section = {"peers": f"http://{{host}}:{port}", "port": port}
    given = {"SESSIONLAKE_SERVE_TOKENS": token}
    with (
        serving(on_host(stream, 0), given, host=HOSTS[0], **section) as url,
        serving(on_host(stream, 1), given, host=HOSTS[1], **section),
    ):
        headers = {"Authorization": f"Bearer {token}"}
        for key in KEYS:
            assert ask(url, "/v1/sessions", headers, key=key)[0] == 200
            assert ask(url, "/v1/sessions", key=key)[0] == 401


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_peers_over_tls(stream: Stream, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    names = ",".join(f"IP:{host}" for host in HOSTS)
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lake -addext subjectAltName={names}"
    subprocess.run([*made.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    files = {"tls_key": str(key), "tls_certificate": str(certificate)}
    port = free_port()
    section = {"peers": f"https://{{host}}:{port}", "port": port, "peers_authority": str(certificate)}
    with serving(on_host(stream, 1), host=HOSTS[1], **files, **section):
        with serving(on_host(stream, 0), host=HOSTS[0], **section) as url:
            for name in KEYS:
                assert ask(url, "/v1/sessions", key=name)[0] == 200
        # Nobody vouches for the other one: there are only the tables, which are not there.
        with serving(on_host(stream, 0), host=HOSTS[0], **{**section, "peers_authority": None}) as url:
            assert {ask(url, "/v1/sessions", key=name)[0] for name in KEYS} == {200, 503}
    with pytest.raises(ConfigError, match=r"^serve\.peers_authority: "):
        Peers(ServeSection(peers="https://{host}:1", peers_authority=str(tmp_path / "none")))


@pytest.mark.parametrize(
    "host", ["", "a b", "evil.example/", "a@b", "a:1", "a#", "a?x", "..", "x" * 254, "a\r\nb", "é"]
)
def test_odd_hosts_are_not_asked(host: str) -> None:
    section = ServeSection(peers="https://{host}:8787")
    assert section.peer_url(host) is None
    assert Peers(section).url(host) is None


def test_addresses_of_peers() -> None:
    section = ServeSection(peers="https://{host}.lake.example:8787")
    assert section.peer_url("node-1") == "https://node-1.lake.example:8787"
    assert ServeSection(peers="https://{host}:1").peer_url("::1") == "https://[::1]:1"
    assert ServeSection().peer_url("node-1") is None


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ({"peers": "https://{host}"}, "serve.peers: 'https://{host}' is no address of servers; "),
        ({"peers": "https://other:8787"}, "serve.peers: 'https://other:8787' is no address of servers; "),
        ({"peers": "https://{host}:8787/x"}, "serve.peers: 'https://{host}:8787/x' is no address of servers; "),
        ({"peers": "https://a@{host}:8787"}, "serve.peers: 'https://a@{host}:8787' is no address of servers; "),
        (
            {"peers": "http://{host}:1", "host": "192.0.2.1", "tls_key": "k", "tls_certificate": "c"},
            "serve.peers: 'http://{host}:1' would send tokens that anybody on the way can read; ",
        ),
        ({"peers_authority": "ca.pem"}, "serve.peers: is missing; "),
    ],
)
def test_wrong_settings(section: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ServeSection(**section).check()
    assert str(refused.value).startswith(line)


def test_what_is_left_unread_of_one_answer_is_not_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessionlake.serve.peers._MOST", 10)
    bodies, asked_again = [b'"' + b"long" * 10_000 + b'"', b'"short"'], Event()

    class Peer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = bodies.pop(0)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(body[:20])
                self.wfile.flush()
                if body[20:]:
                    asked_again.wait(30)
                    self.wfile.write(body[20:])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Peer) as server:
        Thread(target=server.serve_forever).start()
        url, call = f"http://127.0.0.1:{server.server_port}", Call("/v1/status", {}, {"headers": []})
        peers = Peers(ServeSection())
        answers = [peers.ask(url, "b", call, "p/1") for _ in range(2)]
        asked_again.set()
        peers.close()
        server.shutdown()
    assert [answer and answer.body for answer in answers] == [None, b'"short"']
