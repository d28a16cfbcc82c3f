"""A pipeline whose source is the results of another one: what it takes from that, and what it can't read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from sessionlake.config.fields import as_columns
from sessionlake.config.load import load_config, parse_config
from sessionlake.config.sections import OF_RESULTS
from sessionlake.errors import ConfigError
from sessionlake.stream.changes import refusal
from sessionlake.warehouse.batch_commit import BatchCommit, Settings

Write = Callable[..., Path]
SESSIONS: dict[str, Any] = {
    "pipeline": {"warehouse": "lake/clicks"},
    "source": {"kind": "files", "path": "events", "format": "json"},
    "event": {"key": "user", "time": "at"},
    "session": {"gap": "10 minutes", "grace": "5 minutes"},
}
WINDOW = {"kind": "tumbling", "size": "1 day", "retention": "30 days"}
DAYS: dict[str, Any] = {
    "pipeline": {"warehouse": "lake/days"},
    "source": {"kind": "results", "of": "clicks", "rows": "final"},
    "event": {},
    "window": WINDOW,
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(**files: dict[str, Any]) -> Path:
        for name, content in files.items():
            named = {**content, "pipeline": {"name": name, **content["pipeline"]}}
            (tmp_path / f"{name}.toml").write_text(tomli_w.dumps(named))
        return tmp_path

    return written


def with_(config: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    return {**config, **{name: {**config.get(name, {}), **section} for name, section in sections.items()}}


@pytest.mark.parametrize(
    ("upstream", "key", "time"),
    [
        (SESSIONS, "session_key", "session_end"),
        (with_({n: s for n, s in SESSIONS.items() if n != "session"}, window=WINDOW), "window_key", "window_start"),
    ],
)
def test_key_and_time_are_those_of_the_rows_unless_named(
    write: Write, upstream: dict[str, Any], key: str, time: str
) -> None:
    root = write(clicks=upstream, days=DAYS, starts=with_(DAYS, event={"key": "page", "time": "at"}))
    event = load_config(root / "days.toml").event
    assert (event.key, event.time) == (key, time)
    own = load_config(root / "starts.toml").event
    assert (own.key, own.time) == ("page", "at")


IDENTITIES = [
    ({"session": SESSIONS["session"]}, ["session_key", "session_start"]),
    ({"window": WINDOW}, ["window_key", "window_start"]),
    ({"table": {}}, "table_key"),
    ({"group": {}}, "group_key"),
    (
        {"process": {"class": "funnel:Funnel", "retention": "1 day", "output": {"step": "string"}}},
        ["output_key", "position", "ordinal"],
    ),
]


@pytest.mark.parametrize(("operator", "key"), IDENTITIES)
def test_the_key_of_a_table_is_the_identity_of_the_rows_unless_named(
    write: Write, operator: dict[str, Any], key: Any
) -> None:
    front = {n: s for n, s in SESSIONS.items() if n != "session"} | operator
    table = {n: s for n, s in GROUPED.items() if n != "group"} | {"table": {"order": "offset"}}
    root = write(clicks=front, copies=table, own=with_(table, event={"key": "page"}), groups=GROUPED)
    assert load_config(root / "copies.toml").event.key == key
    assert load_config(root / "own.toml").event.key == "page"
    assert load_config(root / "groups.toml").event.key == (key if isinstance(key, str) else key[0])


@pytest.mark.parametrize(
    ("event", "warnings"),
    [
        ({}, 0),
        ({"key": "page"}, 1),
        ({"key": "session_key"}, 1),
        ({"key": ["session_start", "page", "session_key"]}, 0),
        ({"key": ["session_start", "tenant", "user"]}, 0),
        ({"key": ["session_start", "user"]}, 1),
        ({"key": ["session_start", "session_key"], "columns": {"session_key": "lower(page)"}}, 1),
    ],
)
def test_a_key_that_two_rows_may_have_is_warned_of(write: Write, event: dict[str, Any], warnings: int) -> None:
    """Whoever sends events in front could stop the pipeline behind with two equal values."""
    table = {n: s for n, s in GROUPED.items() if n != "group"} | {"table": {"order": "offset"}}
    front = with_(SESSIONS, event={"key": ["tenant", "user"]})
    root = write(clicks=front, own=with_(table, event=event), groups=with_(GROUPED, event=event))
    named = " and ".join(map(repr, as_columns(event.get("key"))))
    told = (
        f"event.key: once two rows of 'clicks' have the same {named}, this pipeline stops until the table is made again under another key; "
        'write key = ["session_key", "session_start"], unless that can\'t happen'
    )
    assert load_config(root / "own.toml").warnings() == [told] * warnings
    assert load_config(root / "groups.toml").warnings() == []


def test_it_is_named_by_name_or_path_and_read_where_it_is(write: Write, tmp_path: Path) -> None:
    root = write(clicks=SESSIONS, days=DAYS, paths=with_(DAYS, source={"of": "clicks.toml"}))
    for name in ("days", "paths"):
        config = load_config(root / f"{name}.toml")
        assert config.source.path == f"{tmp_path}/lake/clicks/session_changelog"
        assert config.upstream["source"].name == "clicks"


def test_a_side_of_a_join_can_be_results(write: Write) -> None:
    side = {"event": {"time": "session_end"}, "source": DAYS["source"], "size": "1 hour", "columns": ["event_count"]}
    sides = {at: {"name": name, **side} for at, name in (("left", "former"), ("right", "latter"))}
    join = {"on": ["session_key"], "grace": "1 hour", "retention": "7 days", "idle": "1 day", **sides}
    root = write(clicks=SESSIONS, pairs={"pipeline": {"warehouse": "lake/pairs"}, "join": join})
    config = load_config(root / "pairs.toml")
    assert {*config.upstream} == {"join.left.source", "join.right.source"}
    assert all(one.source.path.endswith("session_changelog") for one in config.inputs.values())


@pytest.mark.parametrize("name", ["clicks", "visits"])
def test_a_pipeline_has_the_name_of_its_config(write: Write, name: str) -> None:
    """Its file may be called otherwise."""
    root = write(front=with_(SESSIONS, pipeline={"name": name}), days=with_(DAYS, source={"of": name}))
    assert load_config(root / "days.toml").upstream["source"].name == name


def test_rows_of_a_processor_are_final_at_once(write: Write) -> None:
    process = {"class": "funnel:Funnel", "retention": "1 day", "output": {"step": "string"}}
    front = {n: s for n, s in SESSIONS.items() if n != "session"} | {"process": process}
    root = write(clicks=front, days=DAYS)
    assert load_config(root / "days.toml").event.time == "output_time"


def test_what_is_read_of_a_text_is_not_changed(tmp_path: Path, write: Write) -> None:
    write(clicks=SESSIONS)
    content = {**DAYS, "pipeline": {"name": "days", **DAYS["pipeline"]}}
    before = tomli_w.dumps(content)
    assert parse_config(content, tmp_path).event.key == "session_key"
    assert tomli_w.dumps(content) == before


KEYED = {n: s for n, s in SESSIONS.items() if n != "session"} | {"table": {}}
WRONG = [
    ({"source": {"of": "click"}}, "source.of: there is no pipeline 'click' beside this file"),
    ({"source": {"of": ""}}, "source.of: is missing; write the name of a pipeline"),
    ({"source": {"rows": "all"}}, "source.rows: "),
    ({"source": {"of": "other/click.toml"}}, "source.of: there is no pipeline 'other/click.toml' beside this file"),
    ({"source": {"path": "x"}}, "source.path: does not go with kind 'results'; remove it"),
    ({"source": {"max_files_per_batch": 16}}, "source.max_files_per_batch: does not go with kind 'results'; remove it"),
    ({"event": {"max_future_skew": "1 hour"}}, "event.max_future_skew: no clock judges rows of 'clicks'; remove it"),
    (
        {"source": {"of": "keyed"}},
        "source.rows: 'final' is of rows that close, and those of 'keyed', a [table], never do",
    ),
    ({"source": {"of": "days"}}, "source.of: 'days' is this pipeline itself; name another one"),
    ({"source": {"of": "policy"}}, "source.rows: 'final' would take for closed what was sent"),
    ({"source": {"of": "homeless.toml"}}, "source.of: 'homeless.toml' has no pipeline.warehouse; correct "),
    ({"source": {"of": "broken"}}, "source.of: 'broken' has no valid section of an operator; correct "),
    ({"source": {"rows": "changes"}}, "source.rows: a [window] can't take rows back that change; write 'final'"),
    (
        {"pipeline": {"archive": "all"}},
        "pipeline.archive: 'all' keeps rows that the tables of 'clicks' have; write true or false",
    ),
]


@pytest.mark.parametrize(("sections", "told"), WRONG)
def test_what_it_can_not_read_is_told_in_one_line(write: Write, sections: dict[str, Any], told: str) -> None:
    policy = with_(SESSIONS, emit={"early": "batch", "late": "batch"})
    broken = with_(SESSIONS, session={"gap": "long"})
    root = write(clicks=SESSIONS, keyed=KEYED, policy=policy, broken=broken, days=with_(DAYS, **sections))
    (root / "homeless.toml").write_text('[session]\ngap = "1 hour"\n')
    with pytest.raises(ConfigError) as caught:
        load_config(root / "days.toml")
    (line,) = str(caught.value).splitlines()
    assert told in line


GROUPS = {n: s for n, s in DAYS.items() if n != "window"} | {"group": {}, "aggregates": {"n": "count()"}}
LOOKUP = {"name": "users", "path": "users", "on": "session_key = id", "columns": ["plan"]}
NOT_TAKEN_BACK = [
    ({"pipeline": {"archive": True}}, "pipeline.archive: would keep rows that are taken back, "),
    ({"pipeline": {"archive": "all"}}, "taken back, and 'clicks' has them; write false"),
    ({"event": {"id": "session_id", "unique_for": "1 day"}}, "event.unique_for: rows of 'clicks' come once; remove it"),
    ({"source": {"of": "fading"}}, "source.rows: rows of 'fading' expire without a change that could be read"),
    ({"lookup": [LOOKUP]}, "lookup: a row would be taken back with other columns than it was added with"),
]


@pytest.mark.parametrize(("sections", "told"), NOT_TAKEN_BACK)
def test_what_can_not_be_taken_back_is_told_in_one_line(write: Write, sections: dict[str, Any], told: str) -> None:
    fading = with_(KEYED, ttl={"pattern": "segments", "ttl": "1 day"})
    days = with_(GROUPS, source={"rows": "changes"})
    days = {**days, **sections} if "lookup" in sections else with_(days, **sections)
    root = write(clicks=SESSIONS, fading=fading, days=days)
    with pytest.raises(ConfigError) as caught:
        load_config(root / "days.toml")
    (line,) = str(caught.value).splitlines()
    assert told in line


def test_a_wrong_section_is_the_only_problem(write: Write) -> None:
    root = write(clicks=SESSIONS, days=with_(GROUPS, source={"rows": "changes"}, group={"gap": "1 hour"}))
    with pytest.raises(ConfigError, match=r"^[^\n]*group\.gap: is unknown[^\n]*$"):
        load_config(root / "days.toml")


def test_rows_are_named(write: Write) -> None:
    source = {name: value for name, value in DAYS["source"].items() if name != "rows"}
    root = write(clicks=SESSIONS, days={**DAYS, "source": source})
    with pytest.raises(ConfigError, match=r"source\.rows: is missing; write 'final', for rows that events"):
        load_config(root / "days.toml")


def test_what_is_read_binds_the_tables(write: Write) -> None:
    root = write(clicks=SESSIONS, days=DAYS)
    settings = load_config(root / "days.toml").rebuild_settings()
    assert (settings["source.of"], settings["source.rows"]) == ("clicks", "final")
    assert "source.of" not in load_config(root / "clicks.toml").rebuild_settings()


GROUPED = {
    "pipeline": {"warehouse": "lake/days"},
    "source": {"kind": "results", "of": "clicks", "rows": "changes"},
    "group": {},
}


@pytest.mark.parametrize("setting", [{"max_key_bytes": 100}, {"where": "event_count > 1"}])
def test_what_judges_rows_that_are_taken_back_is_bound(write: Write, setting: dict[str, Any]) -> None:
    """A row that was a dead letter would be taken back from a group that it was never in."""
    root = write(clicks=SESSIONS, days=GROUPED, other=with_(GROUPED, event=setting))
    days, other = (load_config(root / f"{name}.toml").rebuild_settings() for name in ("days", "other"))
    assert {name for name in days if days[name] != other[name]} == {f"event.{name}" for name in setting}


def test_a_pipeline_may_be_named_in_another_way(write: Write) -> None:
    """By its file in place of its name, but not another one in its place."""
    root = write(clicks=SESSIONS, visits=with_(SESSIONS, pipeline={"warehouse": "lake/visits"}), days=DAYS)
    by_name = load_config(root / "days.toml")
    settings = Settings(by_name.rebuild_settings(), by_name.live_settings(), {})
    last = BatchCommit("days", "c", 7, "x", {}, {}, (None,) * 4, "1", settings, None, 0, 0)
    for of in ("./clicks.toml", "clicks.toml", str(root / "clicks.toml")):
        write(days=with_(DAYS, source={"of": of}))
        assert refusal(load_config(root / "days.toml"), last) is None
    write(days=with_(DAYS, source={"of": "visits"}))
    assert str(refusal(load_config(root / "days.toml"), last)).startswith(
        "source.of: changed from 'clicks' to 'visits'"
    )


@pytest.mark.parametrize(
    ("clicks", "days", "trigger"),
    [
        ({}, {}, OF_RESULTS),
        ({}, {"trigger": "1 minute"}, "1 minute"),
        ({"warehouse": "s3a://lake/clicks"}, {}, "10 seconds"),
        ({}, {"warehouse": "s3a://lake/days"}, "10 seconds"),
    ],
)
def test_results_on_a_disk_are_looked_for_often_unless_a_trigger_is_written(
    write: Write, clicks: dict[str, Any], days: dict[str, Any], trigger: str
) -> None:
    root = write(clicks=with_(SESSIONS, pipeline=clicks), days=with_(DAYS, pipeline=days))
    assert load_config(root / "days.toml").pipeline.trigger == trigger
    assert load_config(root / "clicks.toml").pipeline.trigger == "10 seconds", "files are looked for as ever"


def test_a_trigger_of_the_project_counts_as_written(write: Write) -> None:
    root = write(clicks=SESSIONS, days=DAYS)
    (root / "project.toml").write_text('[pipeline]\ntrigger = "10 seconds"\n')
    assert load_config(root / "days.toml").pipeline.trigger == "10 seconds"
