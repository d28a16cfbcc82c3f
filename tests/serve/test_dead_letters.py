"""Dead letters over HTTP: the counts of their reasons, and the rows page by page, against plain Python over the same rows."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlake.serve.cursors import write_cursor
from sessionlake.serve.dead_letters import DeadLetters
from sessionlake.warehouse import schemas
from tests.serve.letters_support import write_letters
from tests.serve.replica_support import Stream
from tests.serve.server_support import ask, serving

TOKEN, METRICS = "a-token-that-opens-all", "a-token-for-metrics"
SECRET = "4711-of-ann"  # noqa: S105 (a value of a row)
CUT = {
    "null key": "null key",
    f"unparsable time: '{SECRET}'": "unparsable time: '...'",
    "unparsable time: 'x'": "unparsable time: '...'",
    'class rate:Rate raised KeyError: "it\'s" at rate.py:13': "class rate:Rate raised KeyError: '...' at rate.py:13",
    "wrong type: price = 12.5 is not a long": "wrong type: price = ... is not a long",
    "wrong type: price = 'a' = b is not a c is not a long": "wrong type: price = ... is not a long",
    "wrong type: price = 1e400 is not a long": "wrong type: price = ... is not a long",
    "line too long: 70000 bytes, source.max_line_bytes is 65536": "line too long: ... bytes, source.max_line_bytes is ...",
}
"""What is shown of reasons."""
REASONS = list(CUT)
UPTO = 3
"""The last batch that is committed: the table has rows of the next one."""
ROWS = st.fixed_dictionaries(
    {
        "reason": st.sampled_from(REASONS),
        "kind": st.sampled_from(["event", "restate"]),
        "raw": st.sampled_from([None, "{}", "{'a'}"]),
        "source": st.sampled_from([None, "", "a.json:1", "a.json:10", "é"]),
        "batch_id": st.sampled_from([None, 0, 1, 2, UPTO, UPTO + 1]),
    }
)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """Four batches with seven dead letters of three reasons, one of a job, and one of a batch that is not committed."""
    made = Stream(tmp_path_factory.mktemp("letters"))
    for _ in range(UPTO + 1):
        made.run([("a", 0)])
    batches = (0, 0, 1, 3, 3, 3, 3, None, 4)
    reasons = (0, 1, 1, 2, 1, 2, 3, 0, 0)
    rows = [
        {"reason": REASONS[of], "kind": "event" if batch is not None else "restate", "raw": "{}", "source": f"f.json:{n}", "batch_id": batch}
        for n, (batch, of) in enumerate(zip(batches, reasons, strict=True))
    ]  # fmt: skip
    write_letters(made, rows)
    return made


def pages(url: str, **parameters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        status, answer, _ = ask(url, "/v1/dead_letters", cursor=cursor, **parameters)
        assert status == 200, answer
        assert len(answer["dead_letters"]) <= parameters.get("limit", 100)
        found += answer["dead_letters"]
        cursor = answer["cursor"]
        if cursor is None:
            return found


def cut(reason: str) -> str:
    return CUT[reason]


@settings(max_examples=25)
@given(st.lists(ROWS, max_size=40), st.integers(1, 9), st.sampled_from([None, *map(cut, REASONS)]))
def test_pages_have_each_row_once_the_newest_batch_first(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], limit: int, reason: str | None
) -> None:
    made = Stream(tmp_path_factory.mktemp("letters"))
    write_letters(made, rows)
    letters = DeadLetters(made.config, UPTO)
    wanted = [
        (row["batch_id"], row["source"] or "", f"k{n}")
        for n, row in enumerate(rows)
        if (row["batch_id"] or 0) <= UPTO and reason in (None, cut(row["reason"]))
    ]
    found: list[dict[str, Any]] = []
    after = None
    while True:
        page = letters.rows(reason, after, limit + 1).to_pylist()
        found += page[:limit]
        if len(page) <= limit:
            break
        after = letters.position(page[limit - 1])
    got = [(row["batch_id"], row["source"] or "", row["key"]) for row in found]
    assert sorted(map(str, got)) == sorted(map(str, wanted))
    order = [(-(-1 if batch is None else batch), source.encode()) for batch, source, _ in got]
    assert order == sorted(order)
    counted = Counter((row["kind"], cut(row["reason"])) for row in rows if (row["batch_id"] or 0) <= UPTO)
    assert {(row["kind"], row["reason"]): row["rows"] for row in letters.reasons(100).to_pylist()} == counted


def test_reasons_and_rows_over_http(stream: Stream) -> None:
    with serving(stream.config) as url:
        answer = ask(url, "/v1/dead_letter_reasons")[1]
        assert (answer["batch_id"], answer["served_by"], answer["complete"], answer["cursor"]) == (
            3,
            "delta",
            True,
            None,
        )
        assert answer["reasons"] == [
            {"kind": "event", "reason": "unparsable time: '...'", "rows": 5, "last_batch": 3},
            {"kind": "event", "reason": "class rate:Rate raised KeyError: '...' at rate.py:13", "rows": 1, "last_batch": 3},
            {"kind": "event", "reason": "null key", "rows": 1, "last_batch": 0},
            {"kind": "restate", "reason": "null key", "rows": 1, "last_batch": None},
        ]  # fmt: skip
        few = ask(url, "/v1/dead_letter_reasons", limit=3)[1]
        assert (few["complete"], few["reasons"]) == (False, answer["reasons"][:3])
        for limit in (1, 2, 100):
            assert [row["key"] for row in pages(url, limit=limit)] == ["k3", "k4", "k5", "k6", "k2", "k0", "k1", "k7"]
            of_one = pages(url, limit=limit, reason="unparsable time: '...'")
            assert [row["key"] for row in of_one] == ["k3", "k4", "k5", "k2", "k1"]
        assert pages(url, limit=1, times="us")[0] == {
            "reason": "unparsable time: 'x'", "kind": "event", "key": "k3", "event_time": 1_767_225_600_000_000,
            "raw": "{}", "source": "f.json:3", "batch_id": 3, "commit_id": "c",
        }  # fmt: skip
        assert pages(url, reason="no such") == []


def test_a_page_of_rows_ends_by_bytes(stream: Stream) -> None:
    with serving(stream.config, requests_per_second=100_000, max_bytes=1000) as url:
        first = ask(url, "/v1/dead_letters")[1]
        assert 0 < len(first["dead_letters"]) < 8
        assert [row["key"] for row in pages(url)] == ["k3", "k4", "k5", "k6", "k2", "k0", "k1", "k7"]


@pytest.mark.parametrize("position", [("a",), ("a", 1), ("a", 1, 2, 3)])
def test_a_cursor_with_other_numbers_is_refused(stream: Stream, position: Any) -> None:
    with serving(stream.config) as url:
        cursor = write_cursor(repr((schemas.DEAD_LETTERS, None)), position)
        status, answer, _ = ask(url, "/v1/dead_letters", cursor=cursor)
        other = ask(url, "/v1/dead_letters", reason="x", cursor=ask(url, "/v1/dead_letters", limit=1)[1]["cursor"])
    assert (status, answer["error"][:36]) == (422, "cursor: is not one of this question;")
    assert other[0] == 422


def test_who_may_see_them(stream: Stream) -> None:
    """Whoever may see rows that nobody named: by a token that opens all, where ranges are served."""
    given_tokens = {"SESSIONLAKE_SERVE_TOKENS": TOKEN, "SESSIONLAKE_SERVE_METRICS_TOKENS": METRICS}
    paths = ("/v1/dead_letters", "/v1/dead_letter_reasons")

    def asked(url: str, headers: Mapping[str, str]) -> list[tuple[int, Any]]:
        return [ask(url, path, headers)[:2] for path in paths]

    with serving(stream.config, given_tokens) as url:
        for headers, wanted in (({}, 401), (METRICS, 403), (TOKEN, 200)):
            bearer = {"Authorization": f"Bearer {headers}"} if headers else {}
            assert [status for status, _ in asked(url, bearer)] == [wanted] * 2
    with serving(stream.config, ranges=False) as url:
        for status, answer in asked(url, {}):
            assert status == 403
            assert answer["error"].endswith(
                "that nobody named, and ranges are not served here (serve.ranges); ask for keys by name"
            )
            assert SECRET not in str(answer)
