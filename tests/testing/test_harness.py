import pytest

from sessionlake import SessionWindows
from sessionlake.errors import ConfigError
from sessionlake.testing import SessionizerHarness

MINUTE = 60_000_000
WINDOWS = SessionWindows.with_gap("30 minutes").grace("0 seconds").until("7 days")


def test_readme_example() -> None:
    with SessionizerHarness(WINDOWS, {"total": "sum(v)"}, shards=1) as h:
        out = h.process([{"key": "a", "time_us": 0, "v": 1}, {"key": "a", "time_us": MINUTE, "v": 2}])
        session = {"key": "a", "start_us": 0, "end_us": MINUTE, "event_count": 2, "revision": 0, "total": 3}
        assert out.changes == [{"op": "upsert", **session}]
        assert h.sessions() == [session]
        assert h.watermark_us == MINUTE


def test_kip94_table_of_sessions_and_query() -> None:
    windows = SessionWindows.with_gap("1 us").until("1 day")
    with SessionizerHarness(windows, {}, shards=1) as h:
        edges = [(0, 99), (101, 200), (201, 300), (301, 400)]
        h.process([{"kind": "restate", "key": "k", "start_us": a, "end_us": b} for a, b in edges[::2]])
        assert [(s["start_us"], s["end_us"]) for s in h.sessions()] == [(0, 99), (201, 300)]


def test_users_class_aggregates_events_and_merges_sessions() -> None:
    with SessionizerHarness(
        WINDOWS, {"net": "tests.testing.net_lines:NetLines", "all": "tests.testing.net_lines:Everything"}
    ) as h:
        far = 40 * MINUTE
        rows = [{"key": "a", "time_us": t, "added": 5, "deleted": d} for t, d in ((0, 1), (far, None))]
        assert [c["net"] for c in h.process(rows).changes] == [4, 5]
        bridge = h.process([{"key": "a", "time_us": far // 2, "added": 1, "deleted": 9}])
        assert [(c["op"], c["net"], c["all"]) for c in bridge.changes] == [("upsert", 1, "1"), ("delete", None, None)]


def test_an_event_exactly_max_future_skew_ahead_is_accepted_and_one_microsecond_more_is_dead() -> None:
    with SessionizerHarness(WINDOWS, {}, max_future_skew="1 minute", clock=lambda: 0) as h:
        out = h.process([{"key": "a", "time_us": MINUTE}, {"key": "a", "time_us": MINUTE + 1}])
        assert [row["reason"] for row in out.dead] == ["too far in the future"]
        assert h.watermark_us == MINUTE


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("summ(v)", "aggregates.x: 'summ(v)' is unknown (did you mean 'sum'?); write one of count, "),
        ("sum()", "aggregates.x: 'sum()' names no column; write 'sum(column)'"),
        ("percentile(v, 2)", "aggregates.x: '2' must be a number from 0.0 to 1.0; write 'percentile(column, 0.99)'"),
        (
            "no.such:Class",
            "aggregates.x: 'no.such:Class' can't be loaded (No module named 'no'); write 'package.module:Class'",
        ),
    ],
)
def test_errors_name_value_and_remedy(spec: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised, SessionizerHarness(WINDOWS, {"x": spec}) as h:
        h.process([{"key": "a", "time_us": 0, "v": 1}])
    assert str(raised.value).startswith(message)


def test_retention_shorter_than_gap_and_grace_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"session\.retention: '30min' is shorter than gap"):
        SessionWindows.with_gap("30 minutes").grace("1 microsecond").until("30 minutes")


def test_type_of_a_column_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"schema: v: 'int' is no type; write long, double, "):
        SessionizerHarness(WINDOWS, {"x": "sum(v)"}, schema={"v": "int"})
