"""A config that its tables were not made with, told without Spark."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.load import Config
from sessionlake.stream.changes import Class, changes, refusal, refusals
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from tests.support import make_config

SESSION = {"gap": "10 minutes", "grace": "5 minutes", "retention": "2 hours"}


def last(config: Config, **changed: Any) -> BatchCommit:
    settings = Settings({**config.rebuild_settings(), **changed}, {}, {})
    return BatchCommit(config.pipeline.name, "c", 7, "x", {}, {}, (), "1", settings, None, 0, 0)


@pytest.mark.parametrize(
    ("name", "before", "told"),
    [
        ("session.gap", 1_800_000_000, "session.gap: changed from '30 minutes' to '10 minutes' on existing sessions; "),
        (
            "session.max_length",
            3_600_000_000,
            "session.max_length: is gone, and was '1 hour' on existing sessions; ",
        ),
        ("event.key", "device", "event.key: changed from 'device' to 'user' on existing sessions; "),
    ],
)
def test_what_changed_is_told_in_the_configs_words(tmp_path: Path, name: str, before: Any, told: str) -> None:
    config = make_config(tmp_path, session=SESSION)
    config = config.model_copy(update={"event": config.event.model_copy(update={"key": "user"})})
    assert str(refusal(config, last(config, **{name: before}))).startswith(told)


def test_what_a_run_would_take_is_not_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path, session=SESSION)
    assert refusal(config, last(config)) is None
    assert refusal(make_config(tmp_path, session={**SESSION, "grace": "6 minutes"}), last(config)) is None


def test_the_warehouse_of_another_pipeline(tmp_path: Path) -> None:
    config = make_config(tmp_path, session=SESSION)
    assert "belongs to pipeline 'other'" in str(refusal(config, replace(last(config), pipeline="other")))


def live(config: Config, **changed: Any) -> BatchCommit:
    before = last(config)
    return replace(before, settings=replace(before.settings, live={**config.live_settings(), **changed}))


@pytest.mark.parametrize(
    ("changed", "name", "told"),
    [
        ({"grace_us": 3_600_000_000}, "session.grace", "1 hour -> 5 minutes"),
        ({"retention_us": 86_400_000_000}, "session.retention", "1 day -> 2 hours"),
        ({"beyond_retention": "drop"}, "session.beyond_retention", "drop -> dead_letter"),
        ({"archive": True}, "pipeline.archive", "true -> false"),
        ({"max_future_skew_us": 60_000_000}, "event.max_future_skew", "1 minute -> 5 minutes"),
        ({"max_key_bytes": 10}, "event.max_key_bytes", "10 -> 65536"),
        ({"quarantine": {"max_events": 5}}, "quarantine", '{"max_events": 5} -> (none)'),
    ],
)
def test_live_settings_by_their_keys_in_the_config(
    tmp_path: Path, changed: dict[str, Any], name: str, told: str
) -> None:
    config = make_config(tmp_path, session=SESSION)
    (found,) = changes(config, replace(live(config, **changed), shards=(None, None)), {})
    assert (found.of, found.name, found.told, found.refusal) == (Class.LIVE, name, told, None)


def test_a_setting_that_older_commits_lack_is_no_change(tmp_path: Path) -> None:
    config = make_config(tmp_path, session=SESSION)
    before = replace(live(config, allow_expiry=True), shards=(None, None))
    without = {name: value for name, value in before.settings.live.items() if name != "archive"}
    assert changes(config, replace(before, settings=replace(before.settings, live=without)), {}) == []


def test_stores_are_restored_for_other_shards_or_another_layout(tmp_path: Path) -> None:
    config = make_config(tmp_path, session=SESSION)
    before = replace(live(config), shards=(None,) * 4, layout="4/7")
    (shards,) = changes(config, before, {}, "7")
    assert (shards.of, shards.told) == (Class.RESTORE, "4 -> 2: the stores are restored from the tables")
    two = replace(before, shards=(None,) * 2, layout="2/7")
    assert changes(config, two, {}, "7") == []
    assert [change.of for change in changes(config, two, {}, "8")] == [Class.RESTORE]
    # A rebuild makes new stores anyhow.
    bound = replace(before, settings=replace(before.settings, rebuild={**before.settings.rebuild, "session.gap": 1}))
    assert [change.of for change in changes(config, bound, {}, "7")] == [Class.REBUILD]


def growing(root: Path, aggregates: dict[str, str], **columns: str) -> Config:
    event = {"key": "key", "time": "time_us", "time_unit": "us", "columns": columns}
    return make_config(root, session=SESSION, event=event, aggregates=aggregates)


FIRST = {"n": "count()", "total": "sum(v)"}


def test_an_aggregate_that_is_added_is_taken_by_a_run_and_refused_by_a_job(tmp_path: Path) -> None:
    before = live(growing(tmp_path, FIRST))
    config = growing(tmp_path, {"cost": "sum(cost)", **FIRST}, cost="v * 2")
    found = [(change.of, change.name) for change in changes(config, before, {})]
    assert found[:2] == [(Class.LIVE, "event.columns.cost"), (Class.ADDED, "aggregates.cost")]
    assert refusal(config, before) is None
    (told,) = refusals(config, before, {}, runs=False)
    assert told.startswith("aggregates.cost: is new, and the stream has not taken it; ")
    assert "backfill" in changes(config, before, {})[1].told
    # Their order has no meaning.
    assert {change.of for change in changes(growing(tmp_path, dict(reversed(FIRST.items()))), before, {})} == {
        Class.RESTORE
    }


def test_an_aggregate_that_is_gone_is_dropped_on_demand_alone(tmp_path: Path) -> None:
    before, config = live(growing(tmp_path, FIRST)), growing(tmp_path, {"n": "count()"})
    assert [change.of for change in changes(config, before, {})] == [Class.DROPPED]
    assert "--drop-aggregates" in str(refusal(config, before))
    assert list(refusals(config, before, {}, drops=True)) == []


def test_a_name_keeps_its_meaning(tmp_path: Path) -> None:
    before = live(growing(tmp_path, FIRST))
    told = refusal(growing(tmp_path, {**FIRST, "total": "max(v)"}), before)
    assert str(told).startswith("aggregates.total: changed from 'sum(v)' to 'max(v)' on existing sessions; ")
    # Also that of one that was dropped.
    layouts = [{"since": 0, "texts": {**FIRST, "most": "max(v)"}, "states": {}, "columns": []}]
    dropped = replace(before, settings=replace(before.settings, layouts=layouts))
    assert refusal(growing(tmp_path, {**FIRST, "most": "max(v)"}), dropped) is None
    for name, text in (("most", "min(v)"), ("Most", "max(v)")):
        assert f"aggregates.{name}: " in str(refusal(growing(tmp_path, {**FIRST, name: text}), dropped))


def test_a_computed_column_that_hides_one_that_is_read_is_another_meaning(tmp_path: Path) -> None:
    before = live(growing(tmp_path, FIRST))
    read = replace(before, settings=replace(before.settings, types={"v": "int64"}))
    assert "event.columns.v" in str(refusal(growing(tmp_path, FIRST, v="v + 1"), read))


def test_lookups_come_and_go_and_their_meaning_stays(tmp_path: Path) -> None:
    users = {"name": "users", "path": "users", "on": "key = id", "columns": ["plan"]}
    plain, first = make_config(tmp_path), make_config(tmp_path, lookup=[users])
    refusing = make_config(tmp_path, lookup=[{**users, "missing": "dead_letter"}])
    other = make_config(tmp_path, lookup=[{**users, "as_of": "event_time", "valid_from": "since"}])

    def found(before: Config, after: Config) -> list[tuple[str, str]]:
        committed = live(before)
        return [
            (str(change.of), f"{change.name}: {change.told}")
            for change in changes(after, committed, {})
            if change.of != Class.RESTORE
        ]

    assert found(plain, first) == [("live", "lookup.users: + events are looked up from the next batch on")]
    assert found(first, plain) == [("live", "lookup.users: - events are looked up no more")]
    assert found(first, refusing) == [("live", "lookup.users.missing: null -> dead_letter")]
    assert [of for of, _ in found(first, other)] == ["rebuild", "rebuild"]


def test_a_column_is_not_read_of_the_source_and_then_of_a_lookup_or_the_other_way_round(tmp_path: Path) -> None:
    users = {"name": "users", "path": "users", "on": "key = id", "columns": ["plan", "age"]}
    read = {"plans": "collect_set(users_plan, 9)"}
    own = make_config(tmp_path, aggregates=read)
    looked_up = make_config(tmp_path, aggregates=read, lookup=[users])
    less = make_config(tmp_path, aggregates=read, lookup=[{**users, "columns": ["age"]}])
    unread = make_config(tmp_path, lookup=[{**users, "columns": ["age"]}])

    def found(before: Config, after: Config) -> str | None:
        committed = live(before)
        types = {"users_plan": "string"} if before.aggregates == read else {}
        return refusal(after, replace(committed, settings=replace(committed.settings, types=types)))

    assert str(found(own, looked_up)).startswith(
        "lookup.users.columns: aggregates.plans has read 'users_plan' of source, and would read it of a lookup; give one of "
    )
    for after in (own, less):
        assert str(found(looked_up, after)).startswith(
            "lookup: aggregates.plans has read 'users_plan' of a lookup, and would read it of source; give one of "
        )
    assert found(looked_up, looked_up) is found(less, less) is found(unread, unread) is None
    assert found(make_config(tmp_path), unread) is found(unread, make_config(tmp_path)) is None


HOUR, TEN = 3_600_000_000, 600_000_000
"""The gap of before, and that of the config."""


def earlier(hour: int, gap: str = "1 hour", **more: str) -> dict[str, str]:
    return {"until": f"1970-01-01T{hour:02}:00:00Z", "gap": gap, **more}


@pytest.mark.parametrize(
    ("before", "now", "refused"),
    [
        ([], [earlier(9)], None),
        ([], [earlier(8)], "session.before.0.until: 1970-01-01T08:00:00+00:00 is not after the watermark, 1970-01-01T08:00:00"),
        ([], [earlier(9, "2 hours")], "session.gap: changed from '1 hour' to '10 minutes'"),
        ([[7 * HOUR, TEN, None, 0]], [earlier(7, "10 minutes"), earlier(9)], None),
        ([[7 * HOUR, TEN, None, 0]], [earlier(6, "10 minutes"), earlier(9)], "session.before.0.until: 1970-01-01T06:00:00"),
        ([[7 * HOUR, TEN, None, 0]], [earlier(9)], "session.gap: changed from"),
        ([[9 * HOUR, HOUR, None, 0]], [earlier(10)], None),
        ([], [earlier(9), earlier(10, "5 hours", max_length="6 hours")], None),
    ],
)  # fmt: skip
def test_a_gap_may_change_for_times_to_which_no_event_has_come(
    tmp_path: Path, before: list[Any], now: list[dict[str, str]], refused: str | None
) -> None:
    """The last commit is of a gap of an hour, or of times with another one, and its watermark is 08:00."""
    config = make_config(tmp_path, session={**SESSION, "before": now})
    was = {"session.gap": HOUR, "session.before": before or None}
    batch = replace(last(config, **was), state={"watermark_us": 8 * HOUR})
    told = refusal(config, batch)
    if refused is not None:
        assert str(told).startswith(refused)
        return
    assert told is None
    found = [change for change in changes(config, batch, {}) if change.name in config.section.CUTS]
    assert {change.of for change in found} == {Class.CUT}
    assert (
        next(c.told for c in found if c.name == "session.gap")
        == "'1 hour' -> '10 minutes': for event times after the watermark"
    )


@pytest.mark.parametrize(
    ("was", "written", "refused"),
    [
        ("int64", "double", "source.types.v: 'double', and the pipeline has read 'v' as 'long' since its first batch; restore that, or rebuild"),
        ("decimal128(9, 2)", "double", "source.types.v: 'double', and the pipeline has read 'v' as 'decimal(9, 2)' since its first batch"),
        ("timestamp[us, tz=UTC]", "timestamp", None),
        (None, "double", None),
    ],
)  # fmt: skip
def test_a_column_keeps_its_type(tmp_path: Path, was: str | None, written: str, refused: str | None) -> None:
    """A type that is written later would be read of new rows alone."""
    config = make_config(tmp_path, session=SESSION, source={"types": {"v": written}})
    batch = last(config)
    types = {"key": "string", "time_us": "int64", **({} if was is None else {"v": was})}
    told = refusal(config, replace(batch, settings=replace(batch.settings, types=types)))
    assert told is None if refused is None else str(told).startswith(refused)
