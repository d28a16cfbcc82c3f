"""Pages of keys that have many bytes: the rows of any other key, but no more are looked at than a page has, and in threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest

from sessionlake.operators.sessions.serving import SessionDecoder
from sessionlake.serve import pages
from tests.serve.replica_support import MINUTE, Stream
from tests.serve.server_support import ask, serving

KEYS = ["a", "b", "é", "z"]


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """Sessions in several segments, some of them open, in quarantine or too cold to be shown; the last batch is not applied yet."""
    made = Stream(tmp_path_factory.mktemp("pages"), quarantine={"max_events": 2})
    for n in range(6):
        made.run([(key, (n * 12 + at) * MINUTE) for key in KEYS for at in (0, 0, 0, 6, 6 + n % 2)][n % 3 :])
    return made


@contextmanager
def large(most: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "LARGE", most)
        yield


def every(url: str, question: dict[str, Any]) -> list[dict[str, Any]]:
    """All pages of a listing, cursors included."""
    found: list[dict[str, Any]] = []
    cursor = None
    while cursor is not None or not found:
        if "keys" in question:
            body = {**question, **({"cursor": cursor} if cursor else {})}
            status, answer, _ = ask(url, "/v1/sessions:batch", body=body)
        else:
            status, answer, _ = ask(url, "/v1/sessions", **question, cursor=cursor)
        assert (status, answer.get("served_by")) == (200, "store"), answer
        found.append(answer)
        cursor = answer["cursor"]
    return found


def questions() -> Iterator[dict[str, Any]]:
    times: list[dict[str, Any]] = [{}, {"from": 40 * MINUTE}, {"from": 36 * MINUTE, "to": 48 * MINUTE}]
    for limit in (1, 2, 50):
        for bounds in times:
            for include in ({}, {"include": "open,quarantined"}):
                more = {**bounds, **include, "limit": limit}
                yield from ({"key": "é", "order": order, **more} for order in ("asc", "desc"))
                yield {"key_from": "", **more}
                yield {"keys": [*KEYS, "nobody"], **more}


def test_large_keys_have_the_rows_and_cursors_of_small_ones(stream: Stream) -> None:
    with serving(stream.config, requests_per_second=100_000) as url:
        for question in questions():
            with large(1 << 20):
                expected = every(url, question)
            for most in (-1, 150):  # all of them, or those of some segments
                with large(most):
                    assert every(url, question) == expected, question
        rows = every(url, {"key": "é", "include": "open,quarantined", "times": "us"})[0]["sessions"]
        assert len(rows) > 4
        for most in (-1, 1 << 20):
            with large(most):
                for row in rows:
                    asked = {"key": "é", "start": row["session_start"], "include": "quarantined", "times": "us"}
                    assert ask(url, "/v1/session", **asked)[1]["session"] == row
                    assert ask(url, "/v1/session", **{**asked, "start": row["session_start"] + 1})[0] in (404, 503)


@pytest.mark.parametrize("max_scan", [1, 2, 3])
def test_a_page_ends_after_so_many_sessions_of_one_key(stream: Stream, max_scan: int) -> None:
    bounds = {"requests_per_second": 100_000}
    with (
        large(-1),
        serving(stream.config, **bounds) as whole,
        serving(stream.config, **bounds, max_scan=max_scan) as url,
    ):
        for question in questions():
            found = every(url, question)
            assert [row for page in found for row in page["sessions"]] == [
                row for page in every(whole, question) for row in page["sessions"]
            ], question
            assert all(len(page["sessions"]) <= max_scan for page in found if "keys" in question)
        assert len(every(url, {"key": "é", "limit": 50})) > 1


def test_large_keys_are_read_in_threads_and_no_further_than_the_page(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, seen = SessionDecoder.page, []

    def recorded(*given: Any) -> Any:
        found = page(*given)
        seen.append((current_thread().name.partition("_")[0], len(found[0])))
        return found

    monkeypatch.setattr(SessionDecoder, "page", recorded)
    with large(-1), serving(stream.config) as url:
        for path, asked in (
            ("/v1/sessions", {"key": "é", "limit": 2}),
            ("/v1/sessions", {"prefix": "é", "limit": 2}),
            ("/v1/session", {"key": "é", "start": 0}),
        ):
            ask(url, path, **asked)
    assert [name for name, _ in seen] == ["stores"] * 3
    assert [count for _, count in seen[:2]] == [3, 3]
    assert seen[2][1] <= 2


def test_small_keys_are_read_at_once(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessionlake.serve.threads.Threads.in_stores", None)
    with serving(stream.config) as url:
        assert ask(url, "/v1/sessions", key="é")[0] == 200
        assert ask(url, "/v1/sessions", prefix="é")[0] == 500


def test_without_ranges_nothing_lists_keys(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.run([("a", 0)])
    with serving(stream.config, ranges=False) as url:
        assert ask(url, "/v1/sessions", key="a")[0] == 200
        assert ask(url, "/v1/sessions:batch", body={"keys": ["a"]})[0] == 200
        for path, asked in (("sessions", {"key_from": "a"}), ("sessions", {"prefix": "a"}), ("open", {})):
            status, answer, _ = ask(url, f"/v1/{path}", **asked)
            assert (status, "ranges are not served here (serve.ranges)" in answer["error"]) == (403, True)
