"""The examples of docs/rules.md, played to the sessionizer and to the reference model; each test's name ends with its rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.operators.sessions.strategies import Config, ModelSubject, Row, opened
from tests.oracle.model import COUNTS

MINUTE = 60_000_000
SETTINGS = Config(gap=10 * MINUTE, grace=5 * MINUTE, retention=60 * MINUTE)
ORDINALS = {"+": 1, "-": -1}


def us(time: str) -> int:
    """Return a time as the page writes it, "12:45-" for a microsecond before 12:45."""
    hours, minutes = time.rstrip("+-").split(":")
    return (int(hours) * 60 + int(minutes)) * MINUTE + ORDINALS.get(time[-1], 0)


def shown(time_us: int) -> str:
    minutes, rest = divmod(time_us + 1, MINUTE)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}{'-+'[rest // 2] if rest != 1 else ''}"


def event(time: str, key: str | None = "a") -> Row:
    return {"key": key, "time_us": us(time), "v": 1.0, "id": time}


def partial(start: str, end: str) -> Row:
    return {"start_us": us(start), "end_us": us(end), "event_count": 1, "v": 1.0}


def restate(start: str, end: str, key: str = "a") -> Row:
    return {"kind": "restate", "key": key, **partial(start, end)}


def replace(remove: list[tuple[str, int]], put: list[Row]) -> Row:
    return {"kind": "replace", "key": "a", "remove": [(us(start), revision) for start, revision in remove], "put": put}


def tombstone(start: str, end: str, revision: int) -> Row:
    return {"kind": "tombstone", "key": "a", "start_us": us(start), "end_us": us(end), "revision": revision}


class Stream:
    """The code or the model, with times as the page writes them."""

    def __init__(self, subject: Any) -> None:
        self.subject = subject

    def batch(self, *rows: Row) -> Any:
        return self.subject.process(list(rows))

    def sessions(self, key: str = "a") -> list[tuple[str, str, int]]:
        found = [row for row in self.subject.sessions() if row["key"] == key]
        return [(shown(row["start_us"]), shown(row["end_us"]), row["event_count"]) for row in found]

    @property
    def watermark(self) -> str:
        return shown(self.subject.watermark_us)


def changes(out: Any) -> list[tuple[str, str, int]]:
    """Return (op, start, events) of each change; a delete has no events."""
    found = [(c["op"], shown(c["start_us"]), 0 if c["op"] == "delete" else c["event_count"]) for c in out.changes]
    return sorted(found)


def nonzero(out: Any) -> dict[str, int]:
    return {name: count for name, count in out.counts.items() if count and name in COUNTS}


@pytest.fixture(params=["code", "model"])
def s(request: pytest.FixtureRequest) -> Iterator[Stream]:
    clocked = request.node.originalname.endswith("rule_1")
    kwargs: dict[str, Any] = {"max_future_skew": 5 * MINUTE if clocked else None, "clock": None}
    if clocked:
        kwargs["clock"] = lambda: us("13:00")
    if request.param == "model":
        yield Stream(ModelSubject(SETTINGS, "tests.oracle.model:ReferenceModel", **kwargs))
    else:
        with opened(SETTINGS, **kwargs) as harness:
            yield Stream(harness)


def test_contract_and_counts_rule_1(s: Stream) -> None:
    out = s.batch(event("13:05"), event("13:05+"), event("12:59", key=None))
    assert nonzero(out) == {"input": 3, "accepted": 1, "dead": 2}
    assert [row["time_us"] for row in out.dead] == [us("13:05+"), us("12:59")]
    assert s.watermark == "13:05"


def test_replace_that_names_another_revision_rule_2(s: Stream) -> None:
    s.batch(event("12:30"), event("12:45"))
    out = s.batch(replace([("12:30", 0), ("12:45", 1)], [partial("12:31", "12:31")]))
    assert nonzero(out) == {"corrections": 1, "stale": 1}
    assert s.sessions() == [("12:30", "12:30", 1), ("12:45", "12:45", 1)]


def test_tombstone_before_the_events_of_its_batch_rule_2(s: Stream) -> None:
    s.batch(event("12:30"), event("12:45"))
    s.batch(tombstone("12:45", "12:45", 0), event("12:50"))
    assert s.sessions() == [("12:30", "12:30", 1), ("12:50", "12:50", 1)]


def test_replace_meets_a_cold_session_rule_2(s: Stream) -> None:
    s.batch(event("11:40"))
    s.batch(event("13:00", key="w"))
    assert s.sessions() == []
    out = s.batch(replace([], [partial("11:49", "11:49")]))
    assert changes(out) == [("upsert", "11:40", 2)]
    assert shown(out.changes[0]["end_us"]) == "11:49"


def test_beyond_retention_rule_3(s: Stream) -> None:
    s.batch(event("13:00", key="w"))
    assert nonzero(s.batch(event("12:00"))) == {"input": 1, "late": 1}
    assert nonzero(s.batch(event("12:00-"))) == {"input": 1, "dead": 1}
    assert nonzero(s.batch(restate("11:59", "12:20"))) == {"corrections": 1, "expired": 1}
    assert nonzero(s.batch(restate("12:00", "12:20"))) == {"corrections": 1, "applied": 1}


def test_merge_rule_4(s: Stream) -> None:
    s.batch(event("12:00"), event("12:10"), event("12:20+"))
    assert s.sessions() == [("12:00", "12:10", 2), ("12:20+", "12:20+", 1)]
    s.batch(event("12:15"))
    assert s.sessions() == [("12:00", "12:20+", 4)]


def test_late_rule_5(s: Stream) -> None:
    s.batch(event("12:50"))
    s.batch(event("13:00", key="w"))
    assert nonzero(s.batch(event("12:40"))) == {"input": 1, "accepted": 1}
    assert s.sessions() == [("12:40", "12:50", 2)]
    assert nonzero(s.batch(event("12:45-", key="b"))) == {"input": 1, "late": 1}
    assert nonzero(s.batch(event("12:45", key="b"))) == {"input": 1, "accepted": 1}
    out = s.batch(restate("12:30", "12:30", key="c"), event("12:35", key="c"))
    assert nonzero(out) == {"input": 1, "accepted": 1, "corrections": 1, "applied": 1}


def test_forward_rule_6(s: Stream) -> None:
    s.batch(event("12:10"))
    assert changes(s.batch(event("12:05"))) == [("delete", "12:10", 0), ("upsert", "12:05", 2)]


def test_forward_where_the_start_stays_rule_6(s: Stream) -> None:
    s.batch(event("12:10"))
    assert changes(s.batch(event("12:12"))) == [("upsert", "12:10", 2)]


def test_warm_at_the_horizon_rule_7(s: Stream) -> None:
    s.batch(event("11:50"))
    s.batch(event("13:00", key="w"))
    s.batch(restate("12:00", "12:00"))
    assert s.sessions() == [("11:50", "12:00", 2)]


def test_cold_below_the_horizon_rule_7(s: Stream) -> None:
    s.batch(event("11:50-"))
    s.batch(event("13:00", key="w"))
    s.batch(restate("12:00", "12:00"))
    assert s.sessions() == [("12:00", "12:00", 1)]


def test_watermark_rule_8(s: Stream) -> None:
    assert nonzero(s.batch(event("13:00"), event("12:00"))) == {"input": 2, "accepted": 2}
    assert s.watermark == "13:00"
    assert nonzero(s.batch(event("12:00", key="b"))) == {"input": 1, "late": 1}
    s.batch(restate("13:30", "13:30"))
    assert s.watermark == "13:00"


def test_advance_rule_8() -> None:
    with opened(SETTINGS) as harness:
        if isinstance(harness, ModelSubject):
            pytest.skip("the model knows no advance")
        s = Stream(harness)
        s.batch(event("13:00"))
        s.batch({"kind": "advance", "start_us": us("13:20")})
        assert s.watermark == "13:20"
        s.batch({"kind": "advance", "start_us": us("13:10")})
        assert s.watermark == "13:20"


def test_batch_boundaries_invariant_2(s: Stream) -> None:
    for time in ("12:10", "12:00", "12:20", "12:05"):
        s.batch(event(time))
    s.batch(*(event(time, key="b") for time in ("12:10", "12:00", "12:20", "12:05")))
    assert s.sessions("a") == s.sessions("b") == [("12:00", "12:20", 4)]


def test_exact_invariant_3(s: Stream) -> None:
    s.batch(event("12:00"), event("12:10"), event("12:30"))
    s.batch(event("13:00", key="w"))
    assert nonzero(s.batch(event("12:20"))) == {"input": 1, "late": 1}
    assert s.sessions() == [("12:00", "12:10", 2), ("12:30", "12:30", 1)]
    s.batch(restate("12:20", "12:20"))
    assert s.sessions() == [("12:00", "12:30", 4)]
