"""What can be told of a pipeline without a JVM: the config, the source, aggregates and SQL, the tables, Java, places to write."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import sessionlake
from sessionlake import extras
from sessionlake.config.load import load_config
from sessionlake.config.problems import InvalidConfigError
from sessionlake.errors import NoBatchesError, NotNeededError
from sessionlake.jobs.registry import BY_NAME
from sessionlake.preflight.check import check, require_ready
from sessionlake.preflight.jobs import require_job
from sessionlake.preflight.needs import OF_JOB, OF_REBUILD
from sessionlake.preflight.summary import summary_of
from tests.cli.support import CONFIG, Project
from tests.support import write_config, write_rows

FIXTURE = Path(__file__).parents[1] / "fixtures" / "jobs-0.2.tar.gz"
with_archive = pytest.mark.xfail(
    not FIXTURE.exists(), raises=FileNotFoundError, strict=True, reason="python -m tests.fixtures.make was not run yet"
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def lines(project: Project) -> list[str]:
    return [str(problem).removeprefix(f"{project.path}:") for problem in check(project.path).problems]


def test_a_pipeline_that_is_right_is_told_in_words(project: Project) -> None:
    found = sessionlake.check(project.path)
    assert (found.ok, found.problems) == (True, ())
    assert found.summary == {
        "reads": f"json files in {project.root}/events, at most 16 files a batch",
        "events": "key user, time time; more than 10 minutes ahead of the clock: go to dead_letters",
        "computes": "sessions of events at most 30 minutes apart; events change a session until 10 minutes after it could have gone on",
        "columns": "total = sum(v)",
        "older events": "more than 2 hours before the watermark: go to dead_letters",
        "writes": f"sessions_live (from session_changelog and sessions) in {project.root}/warehouse",
        "sample": f"of the first 1 row of {project.root}/events: 1 event",
    }
    assert not (project.root / "warehouse").exists()
    assert not (project.root / "store").exists()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("changes", "all rows, and their changes (which it finds sooner with pipeline.keep_replaced = true in clicks)"),
        ("final", "rows that are final"),
    ],
)
def test_results_of_another_pipeline_are_told_and_no_clock(project: Project, rows: str, told: str) -> None:
    source = f"[source]\nkind = 'results'\nof = '{project.path.name}'\nrows = '{rows}'\n"
    back = project.root / "back.toml"
    back.write_text(f"[pipeline]\nname = 'back'\nwarehouse = 'back'\n{source}[group]\n")
    front, found = load_config(project.path).pipeline, summary_of(load_config(back))
    assert found["reads"] == f"sessions_live of {front.name} in {front.warehouse}: {told}"
    assert found["events"] == "key session_key, time session_end"


def test_a_loaded_config_is_checked_without_places(project: Project) -> None:
    project.edit("sum(v)", "sum(w)")
    (problem,) = check(load_config(project.path)).problems
    assert (problem.key, problem.file, problem.line) == ("aggregates.total", None, None)


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        (
            [("sum(v)", "sum(usr)")],
            ["22: aggregates.total: 'sum(usr)' reads 'usr', which is no column of '{root}/events' (did you mean 'user'?); write one of user, time, v, or declare it in [source.types]"],
        ),
        (
            [('key = "user"', 'key = "usr"'), ("sum(v)", "sum(w)")],
            [
                "12: event.key: 'usr' is no column of '{root}/events' (did you mean 'user'?); write one of user, time, v, or declare it in [source.types]",
                "22: aggregates.total: 'sum(w)' reads 'w', which is no column of '{root}/events'; write one of user, time, v, or declare it in [source.types]",
            ],
        ),
        (
            [('time = "time"', 'time = "time"\nwhere = "user == ann"')],
            ["14: event.where: 'user == ann' reads 'ann', which is no column of '{root}/events'; write one of user, time, v, or declare it in [source.types]; if it is a text, write 'ann'"],
        ),
        (
            [("[aggregates]", 'max_gap = "1 hour"\ngap_by = "x * interval 1 second"\n[aggregates]')],
            ["22: session.gap_by: 'x * interval 1 second' reads 'x', which is no column of '{root}/events'; write one of user, time, v, or declare it in [source.types]"],
        ),
        ([('path = "events"', 'path = "evts"')], ["8: source.path: '{root}/evts' is no directory; create it or correct the path"]),
        (
            [('kind = "files"\npath = "events"\nformat = "json"', 'kind = "delta"\npath = "events"')],
            ["8: source.path: '{root}/events' is no readable Delta table; create it or correct the path"],
        ),
        ([("sum(v)", "no.such:Module")], ["22: aggregates.total: 'no.such:Module' can't be loaded (No module named 'no'); write 'package.module:Class', of an installed package or one in pipeline.code"]),
        ([('warehouse = "warehouse"', 'warehouse = "clicks.toml/w"')], ["3: pipeline.warehouse: '{root}/clicks.toml/w' can't be written; give this user the right to or choose another path"]),
        ([('warehouse = "warehouse"', 'warehouse = "/proc/nope/wh"')], ["3: pipeline.warehouse: '/proc/nope/wh' can't be written; give this user the right to or choose another path"]),
        ([("shards = 2", 'store = "clicks.toml/s"')], ["4: pipeline.store: '{root}/clicks.toml/s/clicks' can't be written; choose a directory this user may write"]),
        (
            [("[aggregates]", '[expire]\nwhere = "a = \'"\n[aggregates]')],
            ["22: expire.where: \"a = '\" has a text, a quoted name or a comment without an end, or an X'...' that is no number; correct the SQL"],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_around_a_config_is_told_by_its_line(
    project: Project, pairs: list[tuple[str, str]], told: list[str]
) -> None:
    for old, new in pairs:
        project.edit(old, new)
    assert lines(project) == [line.format(root=project.root) for line in told]


def test_an_aggregate_is_parsed_whatever_the_source(project: Project) -> None:
    project.edit("sum(v)", "sum(v")
    project.edit('kind = "files"\npath = "events"', 'kind = "kafka"\ntopic = "t"\nbootstrap_servers = "b:1"')
    (line,) = lines(project)
    assert line.startswith("23: aggregates.total: 'sum(v' opens a bracket that is not closed at character 4; close it")


def test_a_topics_declared_columns_are_enough(project: Project) -> None:
    project.edit('kind = "files"\npath = "events"', 'kind = "kafka"\ntopic = "t"\nbootstrap_servers = "b:1"')
    assert lines(project) == []  # only Spark can tell
    types = '[source.types]\nuser = "string"\ntime = "long"\nv = "date"\n[event]'
    project.edit("[event]", types)
    (line,) = lines(project)
    assert line.startswith("27: aggregates.total: ")


@pytest.mark.parametrize("name", ["v", "w"])
def test_a_delta_tables_columns_are_read_off_its_log(project: Project, name: str) -> None:
    rows = [{"user": "u", "time": 1, "v": 1, "text": "x"}]
    write_deltalake(str(project.root / "table"), pa.Table.from_pylist(rows))
    project.edit('kind = "files"\npath = "events"\nformat = "json"', 'kind = "delta"\npath = "table"')
    project.edit("sum(v)", f"sum({name})")
    place = f"'{project.root}/table'"
    missing = (
        f"21: aggregates.total: 'sum(w)' reads 'w', which is no column of {place}; write one of user, time, v, text"
    )
    assert lines(project) == ([] if name == "v" else [missing])


def test_a_topics_secrets_must_be_there(project: Project) -> None:
    servers = "${env:SESSIONLAKE_NO_SUCH_SERVERS}"
    project.edit('kind = "files"\npath = "events"', f'kind = "kafka"\ntopic = "t"\nbootstrap_servers = "{servers}"')
    (line,) = lines(project)
    assert line.startswith("9: source.bootstrap_servers: ")


def test_the_sinks_secrets_are_for_publish_and_no_run_needs_them(project: Project) -> None:
    sink = '\n[sink.kafka]\nbootstrap_servers = "${env:SESSIONLAKE_NO_SUCH}"\ntopic = "out"\n'
    project.path.write_text(project.path.read_text() + sink)
    (line,) = lines(project)
    assert "sink.kafka.bootstrap_servers: " in line
    assert "SESSIONLAKE_NO_SUCH" in line
    require_ready(load_config(project.path), project.path)


def test_publish_says_without_java_that_there_is_no_sink(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessionlake.cli.publish.open_session", lambda *_, **__: pytest.fail("Spark was started"))
    told = "sink: is missing; add [sink.kafka] with bootstrap_servers and topic, [sink.delta] with path, [sink.postgres] with url and table, or [sink.python] with call"
    project.assert_error(told, "publish")


def used(root: Path, **sections: Any) -> Path:
    """Unpack a warehouse with batches; return its config, with other settings."""
    with tarfile.open(FIXTURE) as files:
        files.extractall(root, filter="data")
    return write_config(root, **{"pipeline": {"archive": True}, **sections})


@with_archive
def test_changed_settings_are_told_in_the_users_words_all_of_them(tmp_path: Path) -> None:
    assert check(used(tmp_path)).problems == ()
    changed = used(
        tmp_path, session={"gap": "20 us", "grace": "10 us"}, event={"id": "no"}, aggregates={"total": "max(v)"}
    )
    problems = check(changed).problems
    assert [(problem.key, problem.message.partition(" on existing")[0]) for problem in problems] == [
        ("event.id", "changed from none to 'no'"),
        ("session.gap", "changed from '10 microseconds' to '20 microseconds'"),
        ("aggregates.total", "changed from 'sum(v)' to 'max(v)'"),
    ]
    assert all("`sessionlake rebuild CONFIG --warehouse NEW`" in problem.message for problem in problems)
    require_ready(load_config(changed), changed, OF_JOB)


@with_archive
def test_a_used_pipeline_needs_no_file_to_learn_types_from(tmp_path: Path) -> None:
    file = used(tmp_path)
    for event in (tmp_path / "events").rglob("*"):
        event.unlink()
    assert check(file).problems == ()


@with_archive
def test_a_warehouse_of_another_pipeline(tmp_path: Path) -> None:
    (problem,) = check(used(tmp_path, pipeline={"name": "other", "archive": True})).problems
    assert (problem.key, problem.line) == ("pipeline.name", 2)
    assert problem.message.endswith("belongs to pipeline 'test', not 'other'; use one warehouse a pipeline")


@with_archive
def test_a_rebuild_needs_the_source_and_not_the_old_settings(tmp_path: Path) -> None:
    file = used(tmp_path, session={"gap": "20 us", "grace": "10 us"})
    write_rows(tmp_path, "new.json", [{"key": "g", "time_us": 165, "v": 1}])
    require_ready(load_config(file), file, OF_REBUILD)
    file = used(tmp_path, session={"gap": "20 us", "grace": "10 us"}, aggregates={"total": "sum(no)"})
    with pytest.raises(InvalidConfigError, match=r"test\.toml:\d+: aggregates\.total: 'sum\(no\)' reads 'no'"):
        require_ready(load_config(file), file, OF_REBUILD)


@with_archive
def test_a_job_is_refused_as_by_itself(tmp_path: Path) -> None:
    unused = write_config(tmp_path)
    with pytest.raises(NoBatchesError, match="has no batches yet"):
        require_job(load_config(unused), unused, BY_NAME["compact"])
    file = used(tmp_path)
    for job in ("compact", "reprocess_late", "expire"):
        require_job(load_config(file), file, BY_NAME[job])
    broken = used(tmp_path, aggregates={"total": "sum(v"})
    require_job(load_config(broken), broken, BY_NAME["compact"])
    with pytest.raises(InvalidConfigError, match="opens a bracket that is not closed"):
        require_job(load_config(broken), broken, BY_NAME["reprocess_late"])
    table = tmp_path / "table.toml"
    table.write_text(CONFIG[: CONFIG.index("[session]")] + "[table]\n")
    with pytest.raises(NotNeededError):
        require_job(load_config(table), table, BY_NAME["reprocess_late"])


OTHERS = {
    "window": '[window]\nkind = "hopping"\nsize = "1 hour"\nadvance = "5 minutes"\ngrace = "10 minutes"\nretention = "1 day"\n',
    "count": '[window]\nby = "count"\nkind = "tumbling"\nsize = 10\nretention = "1 day"\nretention_count = 100\n',
    "table": '[table]\ndelete_when = "v < 0"\n',
    "group": "[group]\n",
}


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ("window", "hopping windows of 1 hour, one every 5 minutes, each sent as it ends; events change a window until 10 minutes after its end"),
        ("count", "tumbling windows of 10 messages, numbered by a key"),
        ("table", "a table with the row of the latest time of each key; an event with 'v < 0' deletes its key; rows never expire"),
        ("group", "one row a key, over all its events"),
    ],
)  # fmt: skip
def test_each_operator_tells_what_it_computes(project: Project, operator: str, words: str) -> None:
    project.path.write_text(CONFIG[: CONFIG.index("[session]")] + OTHERS[operator])
    found = check(project.path)
    assert (found.problems, found.summary["computes"]) == ((), words)
    assert [warning.key for warning in found.warnings] == (["event.max_future_skew"] if operator == "window" else [])


JOIN = """
[pipeline]
name = "pairs"
warehouse = "warehouse"
[join]
on = ["user"]
retention = "1 day"
left = {{ name = "l", size = "5 minutes", columns = ["{left}"], source = {source}, event = {event} }}
right = {{ name = "r", size = "1 minute", columns = ["v"], source = {source}, event = {event} }}
"""
SIDE = {
    "source": '{ kind = "files", path = "events", format = "json" }',
    "event": '{ time = "time", time_unit = "s" }',
}


@pytest.mark.parametrize("left", ["v", "w"])
def test_a_joins_side_is_told_by_its_own_key(project: Project, left: str) -> None:
    project.path.write_text(JOIN.format(left=left, **SIDE))
    found = check(project.path)
    if left == "v":
        near = "l stays joinable for 5 minutes, r for 1 minute"
        late = "messages are late 23 hours 54 minutes after their last possible partner"
        assert found.summary["computes"] == f"pairs of l and r with equal user: {near}; {late}"
    else:
        assert [(problem.key, problem.line) for problem in found.problems] == [("join.left.columns", 8)]


JAVA = """#!/bin/sh
touch "$(dirname "$0")/started"
echo 'openjdk version "21.0.1"' >&2
"""


def java(root: Path, version: str | None) -> Path:
    """Make a Java that tells its version, in its own file or only where it is started."""
    home = root / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(JAVA)
    (home / "bin" / "java").chmod(0o755)
    if version:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


CALLS = """
import json, os, sys
from click.testing import CliRunner
from sessionlake.cli import main
found = []
for home, call in json.loads(sys.argv[1]):
    os.environ["JAVA_HOME"] = home
    result = CliRunner().invoke(main, call)
    found.append([result.exit_code, result.stderr])
print(json.dumps(found))
"""


def outcomes(root: Path, *calls: tuple[Path, list[str]]) -> list[list[Any]]:
    """Make the calls one after the other in one new process, which has no Spark; return exit codes and what was told."""
    words = json.dumps([(str(home), call) for home, call in calls])
    done = subprocess.run([sys.executable, "-c", CALLS, words], cwd=root, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_java_is_not_started_where_its_files_tell_its_version(project: Project) -> None:
    homes = [java(project.root / str(number), version) for number, version in enumerate(("17.0.9", "11.0.2", None))]
    right, old, silent = outcomes(project.root, *((home, ["check", "clicks.toml"]) for home in homes))
    assert (right, silent) == ([0, ""], [0, ""])
    assert old[0] == 2
    assert "java is version 11, Spark needs 17 or later; install OpenJDK 17" in old[1]
    assert [(home / "bin" / "started").exists() for home in homes] == [False, False, True]


def test_commands_tell_it_before_java_starts(project: Project) -> None:
    for name, (old, new) in {
        "call": ("sum(v)", "sum(v"),
        "path": ('path = "events"', 'path = "evts"'),
        "column": ("sum(v)", "sum(w)"),
    }.items():
        (project.root / f"{name}.toml").write_text(CONFIG.replace(old, new))
    times = ["--from", "2026-02-02", "--to", "2026-02-01"]
    told = {
        (
            "run",
            "call.toml",
            "--once",
        ): "call.toml:22: aggregates.total: 'sum(v' opens a bracket that is not closed at character 4",
        ("bootstrap", "path.toml"): "path.toml:8: source.path: ",
        (
            "rebuild",
            "column.toml",
            "--warehouse",
            "new",
        ): "column.toml:22: aggregates.total: 'sum(w)' reads 'w', which is ",
        ("backfill", "clicks.toml", *times): "--from: must be before --to; nothing lies between them",
        ("restore", "clicks.toml", "nothing"): f"backup: '{project.root}/nothing' holds no manifest.json; name the ",
    }
    home = java(project.root, "17.0.9")
    found = outcomes(project.root, *((home, list(call)) for call in told))
    lines = [f"sessionlake: {line}" for line in told.values()]
    assert [(code, text[: len(line)], text.count("\n")) for (code, text), line in zip(found, lines, strict=True)] == [
        (2, line, 1) for line in lines
    ]
    assert not (home / "bin" / "started").exists()
    assert not (project.root / "warehouse").exists()


def test_for_editors_and_ci_it_is_one_object(project: Project) -> None:
    result = project.call("check", "--format", "json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["ok"], found["errors"], found["warnings"]) == (0, True, [], [])
    assert found["summary"]["columns"] == "total = sum(v)"
    project.edit('gap = "30 minutes"', 'gap = "half an hour"')
    project.edit("shards = 2", "shards = 0")
    result = project.call("check", "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (
        2,
        {
            "config": str(project.path),
            "ok": False,
            "errors": [
                {"key": "pipeline.shards", "message": "0 is too small; write 1 or more", "file": str(project.path), "line": 4, "column": 1},
                {
                    "key": "session.gap",
                    "message": "'half an hour' is not a duration; write a number and a unit, as in '30 minutes'",
                    "file": str(project.path),
                    "line": 17,
                    "column": 1,
                },
            ],
            "warnings": [],
            "summary": {},
        },
    )  # fmt: skip


def test_for_people_it_is_lines(project: Project) -> None:
    project.edit('grace = "10 minutes"', 'grace = "10 minutes"\nemit = "update"')
    project.edit("[session]", 'max_future_skew = "3 hours"\n[session]')
    result = project.call("check")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{project.path}: nothing is wrong\n  reads         json files in ")
    assert result.stderr.startswith(
        f"sessionlake: warning: {project.path}:16: event.max_future_skew: 3 hours lets one early event"
    )
    project.edit("sum(v)", "sum(w)")
    project.edit('path = "events"', 'path = "../project/events"')
    result = project.call("check")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(
        f"sessionlake: {project.path}:24: aggregates.total: 'sum(w)' reads 'w', which is no column"
    )


def test_versions_that_do_not_fit_are_problems_too(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    real = extras._version
    monkeypatch.setattr(extras, "_version", lambda name: "3.5.1" if name == "pyspark" else real(name))
    (problem,) = json.loads(project.call("check", "--format", "json").stdout)["errors"]
    assert problem["message"].startswith("pyspark 3.5.1 is installed, sessionlake needs 4.1.x; run: pip install ")


@pytest.mark.parametrize(
    ("named", "said"), [("no.toml", "can't be read"), (".", "is a directory; name a pipeline's file")]
)
def test_a_config_that_can_not_be_read(project: Project, named: str, said: str) -> None:
    found = check(project.root / named)
    (problem,) = found.problems
    assert problem.key == "config"
    assert said in problem.message
