"""What a user gets wrong ends as one line on standard error that names the value and the remedy, with an exit code of its kind."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.config.load import load_config
from sessionlake.errors import ExitCode
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.lock import locked_store
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.cli.support import CONFIG, Project


@pytest.fixture
def project(spark: SparkSession, tmp_path: Path) -> Project:
    del spark  # the commands find it active
    return Project(tmp_path / "project")


@pytest.fixture
def used(ran: Project) -> Project:
    """A pipeline with a committed batch and its own config again; a test that changes its files copies it."""
    ran.path.write_text(CONFIG)
    return ran


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "2 hours",
            "35 minutes",
            "session.retention: '35 minutes' is shorter than gap + grace = 40 minutes; write '40 minutes' or longer",
        ),
        ("30 minutes", "30", "session.gap: '30' is not a duration; write a number and a unit, as in '30 minutes'"),
        ("30 minutes", "soon", "session.gap: 'soon' is not a duration; write a number and a unit, as in '30 minutes'"),
        ("30 minutes", "0 s", "session.gap: '0 s' must be longer than zero; write for example '30 minutes'"),
        ("grace =", "grase =", "session.grase: is unknown (did you mean 'grace'?); remove it or correct its name"),
        ('key = "user"\n', "", "event.key: is missing; add it to the config"),
    ],
)
def test_setting(project: Project, old: str, new: str, line: str) -> None:
    project.edit(old, new)
    project.assert_error(line)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("sum(v)", "summ(v)", ["aggregates.total", "'summ", "sum"]),
        ("sum(v)", "sum(v", ["aggregates.total", "'sum(v'"]),
        ("total =", "State =", ["aggregates.State", "'State' can't name a column"]),
        ("total =", "_rank =", ["aggregates._rank", "'_rank' can't name a column"]),
        ("total =", 'Total = "count()"\ntotal =', ["aggregates.total", "'Total' is its name but for case"]),
        ('"json"', '"jsn"', ["source.format", "'jsn'", "'json'"]),
        ("shards = 2", "shards = 0", ["pipeline.shards", "0 is too small; write 1 or more"]),
        ("[event]", "[event", ["clicks.toml:11: is no valid TOML", "mend that line"]),
        ("sum(v)", "sum(w)", ["'w'", "events"]),
        ('key = "user"', 'key = "usr"', ["'usr'", "events"]),
        ('path = "events"', 'path = "evts"', ["source.path", "evts", "create it or correct the path"]),
        (
            'kind = "files"\npath = "events"\nformat = "json"',
            'kind = "delta"\npath = "events"',
            ["source.path", "no readable Delta table"],
        ),
        ('warehouse = "warehouse"', 'warehouse = "clicks.toml/w"', ["pipeline.warehouse", "clicks.toml/w", "can't be"]),
        (
            "shards = 2",
            'shards = 2\nstore = "clicks.toml/s"',
            ["pipeline.store", "clicks.toml/s", "can't be", "choose"],
        ),
    ],
)
def test_value(project: Project, old: str, new: str, words: list[str]) -> None:
    project.edit(old, new)
    assert_words(project.call("run", "--once"), words)


def assert_words(result: Any, words: list[str], code: ExitCode = ExitCode.USER) -> None:
    assert result.exit_code == code, result.exception
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("sessionlake: ")
    assert [word for word in words if word not in result.stderr] == []


def test_no_config(project: Project) -> None:
    project.path.unlink()
    project.assert_error(
        "config: '{root}/clicks.toml' can't be read (No such file or directory); pass the path of a TOML file"
    )


def test_empty_source(project: Project) -> None:
    shutil.rmtree(project.root / "events")
    (project.root / "events").mkdir()
    project.assert_error(
        "source.path: '{root}/events' holds no json files to learn the columns from; add one or declare [source.types]"
    )


@pytest.mark.parametrize("command", ["status", "sql"])
def test_before_the_first_run(project: Project, command: str) -> None:
    arguments = (command, "select 1") if command == "sql" else (command,)
    assert_words(
        project.call(*arguments),
        ["pipeline.warehouse", str(project.root), "run `sessionlake run` first"],
        ExitCode.NO_BATCHES,
    )


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("selct 1", ["sql: ", "'selct'", "correct the query"]),
        ("select nothing from sessions_live", ["sql: ", "`nothing`", "correct the query"]),
        ("select raise_error('of its own')", ["sql: ", "of its own"]),
    ],
)
def test_sql_of_spark(used: Project, query: str, words: list[str]) -> None:
    assert_words(used.call("sql", query, "--engine", "spark", "--allow-files"), words)


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_sql_prints_texts_and_tables_of_jobs_as_they_are(used: Project, spark: SparkSession, engine: str) -> None:
    tables = Tables(spark, str(used.root / "warehouse"), CHANGELOG)
    tables[schemas.JOB_RUNS].create(schemas.JOB_RUNS_SCHEMA, "")
    tables[schemas.QUALITY_RESULTS].create(schemas.QUALITY_RESULTS_SCHEMA, "")
    counted = "(select count(*) from job_runs) + (select count(*) from quality_results)"
    query = f"select '[/a] [b] :key:' text, {counted} n, session_start, state from sessions_live"
    result = used.call("sql", query, "--engine", engine, "--allow-files")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "text            n  session_start",
        "[/a] [b] :key:  0  2023-11-14 22:13:20",
        "left out, since it is bytes: state; --format json has it in base64",
    ]


def test_demo_leaves_a_folder_that_is_no_demos(tmp_path: Path) -> None:
    mine = tmp_path / "events" / "mine.json"
    mine.parent.mkdir()
    mine.touch()
    result = CliRunner().invoke(main, ["demo", "--directory", str(tmp_path)])
    line = f"sessionlake: demo: '{mine.parent}' is there and is no demo's; pass --directory with a new folder\n"
    assert (result.exit_code, result.stderr) == (2, line)
    assert list(tmp_path.rglob("*")) == [mine.parent, mine]


def test_the_demos_server_needs_the_demo(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "serve", "--directory", str(tmp_path)])
    line = f"sessionlake: demo: '{tmp_path}' has no sessions to serve yet; run `sessionlake demo` first, with the same --directory\n"
    assert (result.exit_code, result.stderr) == (2, line)


def test_bootstrap_of_a_used_pipeline(used: Project) -> None:
    used.assert_error(
        "bootstrap: pipeline 'clicks' has committed batches already; bootstrap a new warehouse, or go on with `sessionlake run`",
        "bootstrap",
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "30 minutes",
            "20 minutes",
            ["session.gap: changed from '30 minutes' to '20 minutes'", "`sessionlake rebuild CONFIG --warehouse NEW`"],
        ),
        ("sum(v)", "max(v)", ["aggregates.total: changed from 'sum(v)' to 'max(v)'", "rebuild"]),
        ('key = "user"', 'key = "v"', ["event.key", "'user'", "'v'", "rebuild"]),
        ('"clicks"', '"views"', ["pipeline.name", "'clicks'", "'views'", "one warehouse a pipeline"]),
    ],
)
def test_changed_on_existing_sessions(used: Project, old: str, new: str, words: list[str]) -> None:
    used.edit(old, new)
    assert_words(used.call("run", "--once"), words)


def test_locked_store(used: Project) -> None:
    with locked_store(load_config(used.path)):
        assert_words(
            used.call("run", "--once"), ["pipeline.store", "locked by process", "stop that one first"], ExitCode.BUSY
        )


def cut_last_commit(root: Path) -> None:
    last = max((root / "warehouse" / schemas.CHANGELOG / "_delta_log").glob("*.json"))
    last.write_bytes(last.read_bytes()[:-40])
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("lose", "words"),
    [
        (
            lambda root: shutil.rmtree(root / "warehouse" / "_checkpoints"),
            ["checkpoint: ", "is missing", "put the old"],
        ),
        (lambda root: shutil.rmtree(root / "warehouse" / schemas.CHANGELOG), ["checkpoint: ", "has none", "restore"]),
        (
            lambda root: shutil.rmtree(root / "warehouse" / schemas.SESSIONS),
            ["table 'sessions': is missing", "trimmed", "backup"],
        ),
        (
            lambda root: shutil.rmtree(root / "warehouse" / schemas.CORRECTIONS),
            ["table 'corrections': is missing", "backup"],
        ),
        (cut_last_commit, ["session_changelog"]),
    ],
    ids=["checkpoint", "changelog", "sessions", "corrections", "commit"],
)
def test_lost(used: Project, tmp_path: Path, lose: Callable[[Path], None], words: list[str]) -> None:
    lost = Project.__new__(Project)
    lost.root, lost.path = tmp_path / "lost", tmp_path / "lost" / "clicks.toml"
    shutil.copytree(used.root, lost.root)
    lose(lost.root)
    assert_words(lost.call("run", "--once"), words)


def test_drain_without_once(used: Project) -> None:
    result = used.call("run", "--drain")
    assert result.exit_code == 2
    assert "--drain goes with --once" in result.stderr
