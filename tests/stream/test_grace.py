"""The grace of a config that writes none (docs/rules.md, rule 269), in new warehouses and in those of before."""

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake import SessionWindows
from sessionlake.config.checks import check_remembered
from sessionlake.config.load import Config, parse_config
from sessionlake.errors import ConfigError
from sessionlake.preflight.check import check
from sessionlake.preflight.plan import read_plan
from sessionlake.reading import read_sessions
from sessionlake.stream.run import run
from sessionlake.testing import JoinHarness
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.grace import grace_told, keeps_zero, of_warehouse
from sessionlake.warehouse.lake import Lake
from tests.support import make_config, write_rows

HOUR = 3_600_000_000
SIDE = {
    "columns": ["v"],
    "source": {"kind": "files", "path": "events", "format": "json"},
    "event": {"time": "at", "time_unit": "us"},
}


def joined(tmp_path: Path, left: str | None, right: str | None, **more: Any) -> Config:
    sides = {
        at: {"name": at, **SIDE, **({} if size is None else {"size": size})}
        for at, size in (("left", left), ("right", right))
    }
    settings = {"on": ["id"], "retention": "10 hours", **more, **sides}
    return parse_config({"pipeline": {"name": "p", "warehouse": "w"}, "join": settings}, tmp_path)


def single(tmp_path: Path, **section: Any) -> Config:
    raw = {"source": SIDE["source"], "event": {"key": "k", **SIDE["event"]}, "aggregates": {"n": "count()"}}
    return parse_config({"pipeline": {"name": "p", "warehouse": "w"}, **raw, **section}, tmp_path)


def of_operator(name: str, tmp_path: Path) -> Config:
    window = {"kind": "tumbling", "size": "1 hour", "retention": "10 hours"}
    before = [{"until": "2026-01-01", "gap": "2 hours"}]
    makers = {
        "session": lambda: single(tmp_path, session={"gap": "1 hour", "retention": "10 hours"}),
        "before": lambda: single(tmp_path, session={"gap": "1 hour", "retention": "10 hours", "before": before}),
        "alone": lambda: single(tmp_path, session={"gap": "1 hour"}),
        "window": lambda: single(tmp_path, window=window),
        "sliding": lambda: joined(tmp_path, "1 hour", "2 hours"),
        "tumbling": lambda: joined(tmp_path, None, None, kind="tumbling", size="1 hour"),
        "hopping": lambda: joined(tmp_path, None, None, kind="hopping", size="1 hour", advance="30 minutes"),
        "unbounded": lambda: joined(tmp_path, "unbounded", "2 hours"),
        "sessions": lambda: joined(tmp_path, None, None, kind="session", gap="1 hour"),
        "counted": lambda: joined(tmp_path, "1 hour", "2 hours", retention_count=100),
    }
    return makers[name]()


@pytest.mark.parametrize(
    ("name", "hours", "told"),
    [
        ("session", 9, "session.grace: is not written: events change a session until 9 hours after it could have gone"),
        ("before", 8, "session.grace: is not written: events change a session until 8 hours after"),
        ("alone", 0, "session.grace: is not written, nor a retention: a session takes no event that comes more than 1"),
        ("window", 10, "window.grace: is not written: events change a window until 10 hours after its end"),
        ("sliding", 7, "join.grace: is not written: events change pairs until 7 hours after the last possible partner"),
        ("tumbling", 9, "join.grace: is not written: events change pairs until 9 hours after"),
        ("hopping", 8.5, "join.grace: is not written: events change pairs until 8 hours 30 minutes after"),
        ("unbounded", 0, "join.grace: is not written, so it is 0 seconds: a grace shortens the time by which partners"),
        ("sessions", 0, "join.grace: is not written, so it is 0 seconds: a grace shortens the time by which partners"),
        ("counted", 0, "join.grace: is not written, so it is 0 seconds: a grace keeps its messages, however many"),
    ],
)
def test_the_default_of_each_operator_and_how_it_is_told(tmp_path: Path, name: str, hours: float, told: str) -> None:
    config = of_operator(name, tmp_path)
    assert config.grace_us == hours * HOUR
    assert config.retention_us == (HOUR if name == "alone" else 10 * HOUR)
    assert str(grace_told(config, None)).startswith(told)
    # A grace that is nobody's choice moves no watermark far ahead.
    assert all(side.max_future_skew_us <= HOUR for side in config.inputs.values())


@pytest.mark.parametrize("name", ["session", "window", "sliding", "sessions"])
def test_the_default_written_is_the_same_config(tmp_path: Path, name: str) -> None:
    config = of_operator(name, tmp_path)
    written = config.with_grace(config.grace_us)
    assert grace_told(written, None) is None
    assert (written.grace_us, written.rebuild_settings()) == (config.grace_us, config.rebuild_settings())
    assert written.with_grace(1) is written


def commit(config: Config, *, graced: bool) -> BatchCommit:
    settings = Settings(config.rebuild_settings(), config.live_settings(), {}, graced=graced)
    return BatchCommit("p", "c", 7, "x", {}, {}, (), "1", settings, None, 0, 0)


@pytest.mark.parametrize("name", ["session", "sliding", "alone", "window", "sessions"])
def test_a_warehouse_keeps_the_default_that_it_was_made_with(tmp_path: Path, name: str) -> None:
    config = of_operator(name, tmp_path)
    new, old = (commit(config, graced=graced) for graced in (True, False))
    assert "graced" not in old.metadata()["settings"]
    assert not keeps_zero(config, new)
    assert not keeps_zero(config, None)
    assert keeps_zero(config, old) == (name in ("session", "sliding"))
    assert of_warehouse(config, old).grace_us == (0 if name in ("session", "sliding") else config.grace_us)
    written = config.with_grace(5)
    assert of_warehouse(written, old) is written


def test_duplicates_are_known_as_long_as_events_come_under_the_default_of_the_warehouse(tmp_path: Path) -> None:
    event = {"key": "k", **SIDE["event"], "id": "i", "unique_for": "2 hours"}
    config = single(tmp_path, session={"gap": "1 hour", "retention": "10 hours"}, event=event)
    check_remembered(of_warehouse(config, commit(config, graced=False)))
    with pytest.raises(ConfigError) as raised:
        check_remembered(of_warehouse(config, commit(config, graced=True)))
    assert str(raised.value) == (
        "event.unique_for: '2 hours' is shorter than events wait for others, '10 hours'; write that or longer, or a grace, "
        "which is not written"
    )
    (tmp_path / "events").mkdir()
    assert [str(problem) for problem in check(config).problems] == [str(raised.value)]
    short = {**event, "unique_for": "59 minutes"}
    with pytest.raises(ConfigError, match="'59 minutes' is shorter than events wait for others, '1 hour'"):
        single(tmp_path, session={"gap": "1 hour", "retention": "10 hours"}, event=short)


def test_messages_of_a_join_come_as_late_as_the_retention_allows() -> None:
    sides = {"left": {"name": "a", "size": "1 us"}, "right": {"name": "b", "size": "2 us"}}
    rows = [{"id": 1, "time_us": time} for time in (100, 39, 41, 42, 43)]
    # The last possible partner of 41 lies at 42, strictly before the watermark less 57: 60 less both sizes.
    for grace, late in ((None, [41]), ("57 us", [41]), ("56 us", [41, 42]), ("0 us", [41, 42, 43])):
        harness = JoinHarness(on=["id"], **sides, retention="60 us", grace=grace)
        harness.process(left=rows[:1], right=rows[:1])
        found = harness.process(left=rows[1:], right=[])
        assert [row["time_us"] for row in found.late] == late, grace
        # Strictly before the watermark less the retention.
        assert [row["time_us"] for row in found.dead] == [39]


def test_sessions_in_python_have_the_same_default(tmp_path: Path) -> None:
    section = of_operator("session", tmp_path).section
    assert SessionWindows.with_gap("1 hour").until("10 hours").grace_us == section.grace_us


AS_IT_IS = BatchCommit.metadata


def ungraced(commit: BatchCommit) -> dict[str, Any]:
    """Return a commit's metadata as releases of before the rule wrote it."""
    metadata = AS_IT_IS(commit)
    settings = {name: value for name, value in metadata["settings"].items() if name != "graced"}
    return {**metadata, "settings": settings}


def event(key: str, time: int) -> dict[str, Any]:
    return {"key": key, "time_us": time, "v": 1}


def sessions(spark: SparkSession, config: Config) -> list[tuple[str, int]]:
    rows = read_sessions(spark, config).orderBy("session_key", "session_start").collect()
    return [(row.session_key, row.event_count) for row in rows]


def test_runs_of_a_new_warehouse_and_of_one_of_before(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events = ([event("a", 100), event("b", 50)], [event("a", 95), event("c", 60), event("d", 39)])
    for made in ("before", "now"):
        root = tmp_path / made
        root.mkdir()
        config = make_config(root, session={"gap": "10 us", "retention": "60 us"})
        config = config.model_copy(update={"section": config.section.model_copy(update={"grace": None})})
        for i, rows in enumerate(events):
            write_rows(root, f"{i}.json", rows)
            with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
                if made == "before" and i == 0:
                    patched.setattr(BatchCommit, "metadata", ungraced)
                    # As the release of then computed it.
                    run(spark, config.with_grace(0), once=True)
                else:
                    run(spark, config, once=True)
        last = last_batch(Lake.of(config))
        plan, summary = read_plan(config), check(config).summary
        assert [change.name for change in plan.changes] == []
        if made == "before":
            assert (last.settings.graced, last.settings.live["grace_us"]) == (False, 0)
            assert (last.counts["late"], last.counts["dead"], last.counts["accepted"]) == (1, 1, 1)
            kept = (
                "session.grace: is not written: this warehouse keeps 0 seconds, the default that it was made with; "
                "write grace = '50 microseconds', as new ones have it, or '0 seconds'"
            )
            assert (plan.kept, summary["late events"], plan.fields()["kept"]) == (kept, kept, kept)
            assert f"sessionlake: {kept}" in caplog.messages
            assert sessions(spark, config) == [("a", 2), ("b", 1)]
            # A retention that changes does not bring the other default.
            longer = config.model_copy(update={"section": config.section.model_copy(update={"retention": "70 us"})})
            assert [change.name for change in read_plan(longer).changes] == ["session.retention", "pipeline.store"]
        else:
            assert (last.settings.graced, last.settings.live["grace_us"]) == (True, 50)
            assert (last.counts.get("late", 0), last.counts["dead"], last.counts["accepted"]) == (0, 1, 2)
            told = (
                "session.grace: is not written: events change a session until 50 microseconds after it could have "
                "gone on, as long as the retention allows"
            )
            assert (plan.kept, summary["late events"]) == (None, told)
            assert f"sessionlake: {told}" in caplog.messages
            assert sessions(spark, config) == [("a", 2), ("b", 1), ("c", 1)]
        caplog.clear()
