"""`sessions` and reading as a whole: what is printed, and that no JVM is started for it."""

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sessionlake.cli import main
from tests.cli.support import CONFIG, Project

CALLS = """
import json, sys
from sessionlake.cli import main
for call in json.loads(sys.argv[1]):
    try:
        main(call)
    except SystemExit as end:
        assert not end.code, call
print(sorted({"pyspark", "py4j", "pandas"} & set(sys.modules)))
"""


@pytest.fixture
def used(ran: Project) -> Project:
    ran.path.write_text(CONFIG)
    return ran


def test_lines_of_json(used: Project) -> None:
    result = used.call("sessions", "--key", "u", "--json")
    (session,) = json.loads(result.stdout)
    assert isinstance(session.pop("session_id"), int)
    assert session == {
        "session_key": "u",
        "session_start": "2023-11-14T22:13:20+00:00",
        "session_end": "2023-11-14T22:13:20+00:00",
        "session_date": "2023-11-14",
        "event_count": 1,
        "revision": 0,
        "total": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--key", "u"], 1),
        (["--key", "nobody"], 0),
        (["--key", "u", "--from", "2023-11-14T22:13:20"], 1),
        (["--key", "u", "--from", "2023-11-14T22:13:21"], 0),
        (["--key", "u", "--to", "2023-11-14T22:13:20"], 0),
        (["--key", "u", "--limit", "0"], 0),
    ],
)
def test_which_sessions(used: Project, arguments: list[str], found: int) -> None:
    result = used.call("sessions", *arguments, "--format", "json")
    assert (result.exit_code, len(json.loads(result.stdout))) == (0, found)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--key", "no'body"], 'no sessions of the key "no\'body" as of batch 0'),
        (["--key", "u", "--to", "2023-01-01"], "no sessions of the key 'u' in these times as of batch 0"),
    ],
)
def test_a_key_that_has_none(used: Project, arguments: list[str], line: str) -> None:
    for more, stdout, stderr in ([], f"{line}\n", ""), (["--json"], "[]\n", f"{line}\n"):
        result = used.call("sessions", *arguments, *more)
        assert (result.exit_code, result.stdout, result.stderr) == (0, stdout, stderr)


@pytest.mark.parametrize("form", ["csv", "table"])
def test_forms(used: Project, form: str) -> None:
    result = used.call("sessions", "--key", "u", "--format", form)
    head, line, *rest = result.stdout.splitlines()
    assert (result.exit_code, rest) == (0, [])
    cells = [text.split("," if form == "csv" else None) for text in (head, line)]
    names = [
        "session_key",
        "session_start",
        "session_end",
        "session_id",
        "session_date",
        "event_count",
        "revision",
        "total",
    ]
    assert cells[0] == names
    assert not set(result.stdout) & set("│─┃")


def test_queries_reach_the_tables_alone(used: Project) -> None:
    target = used.root / "x.csv"
    for query in (
        f"copy (select 1) to '{target}'",
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/proc/self/environ')",
        f"attach '{target}'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "from 'http://127.0.0.1:9/x.parquet'",
    ):
        result = used.call("sql", query)
        assert (result.exit_code, result.stdout) == (2, ""), query
        assert result.stderr.startswith("sessionlake: sql: the query reaches beyond the pipeline's tables ("), query
        assert "add --allow-files" in result.stderr
        assert result.stderr.count("\n") == 1
        assert not target.exists()
    assert used.call("sql", f"copy (select 1) to '{target}'", "--allow-files").exit_code == 0
    assert target.read_text() == "1\n1\n"
    target.unlink()
    line = "--engine: Spark's SQL can read and write all files that this user may; add --allow-files, or leave --engine out"
    used.assert_error(line, "sql", "select 1", "--engine", "spark")


def test_no_statement_is_told(used: Project) -> None:
    used.assert_error("sql: there is no statement; write one", "sql", " ")


def test_a_query_that_needs_the_disk_to_sort(used: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB would open its temporary directory to the query, so there is one only with --allow-files."""
    from sessionlake.serve import database

    monkeypatch.chdir(used.root)
    monkeypatch.setattr(database, "_LOCKED", f"set memory_limit = '60MB'; set threads = 1; {database._LOCKED}")
    query = "select i, md5(i::varchar) m from range(1500000) t(i) order by m limit 1000000"
    result = used.call("sql", query, "--limit", "1", "--json")
    assert result.exit_code != 0
    assert "the query needs more memory than there is" in result.stderr
    result = used.call("sql", query, "--limit", "1", "--json", "--allow-files")
    assert result.exit_code == 0, result.stderr
    assert [row.keys() for row in json.loads(result.stdout)] == [{"i", "m"}]


def test_tables_that_show_tables_lists(used: Project) -> None:
    listed = set(used.call("sql", "show tables", "--format", "csv").stdout.split())
    assert {"sessions", "session_changelog", "sessions_live", "batches"} <= listed
    assert not {"new_batches", "stored_batches"} & listed


@pytest.mark.parametrize("command", ["windows", "joins", "table"])
def test_the_command_of_another_operator(used: Project, command: str) -> None:
    line = f"{command}: this pipeline computes sessions; use: sessionlake sessions {used.path} --key KEY"
    used.assert_error(line, command, "--key", "u")


def test_status_as_an_object(used: Project) -> None:
    (found,) = json.loads(used.call("status", "--format", "json").stdout)
    assert (found["name"], found["state"], found["lag_seconds"] > 0) == ("clicks", "stopped", True)
    assert (found["pipeline"], found["batch_id"], found["reconciles"], found["refused"]) == ("clicks", 0, True, None)
    assert found["watermark"] == "2023-11-14T22:13:20+00:00"
    assert found["counts"]["input"] == found["last_batches"][0]["input"] == 1
    (flat,) = csv.DictReader(io.StringIO(used.call("status", "--format", "csv").stdout))
    assert (flat["batch_id"], flat["counts_accepted"], flat["reconciles"]) == ("0", "1", "true")


def test_status_of_a_config_that_a_run_would_refuse(used: Project) -> None:
    used.edit('gap = "30 minutes"', 'gap = "20 minutes"')
    result = used.call("status")
    assert result.exit_code == 0
    assert (
        "config       a run would be refused: session.gap: changed from '30 minutes' to '20 minutes' on existing sessions;"
        in result.stdout
    )
    refused = used.call("run", "--once").stderr.strip()
    assert refused.endswith(json.loads(used.call("status", "--json").stdout)[0]["refused"])


def test_a_key_from_standard_input(used: Project) -> None:
    result = CliRunner().invoke(main, ["sessions", str(used.path), "--key", "-"], input="u\n")
    assert result.exit_code == 0
    assert "2023-11-14 22:13:20" in result.stdout


def test_a_time_that_is_none(used: Project) -> None:
    line = "--from: 'noon' is no ISO date or time; write for example '2026-01-31'"
    used.assert_error(line, "sessions", "--key", "u", "--from", "noon")


def test_reading_needs_neither_spark_nor_pandas(used: Project) -> None:
    path = str(used.path)
    calls = [
        ["status", path],
        ["metrics", path, "--once"],
        ["sql", path, "select * from sessions_live"],
        ["sessions", path, "--key", "u"],
    ]
    done = subprocess.run([sys.executable, "-c", CALLS, json.dumps(calls)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout


def test_tables_that_no_batch_has_reached(used: Project, tmp_path: Path) -> None:
    shutil.copytree(used.root, tmp_path / "new")
    for log in (tmp_path / "new" / "warehouse").glob("*/_delta_log"):
        for commit in log.iterdir():
            if not commit.name.startswith("0" * 20):
                commit.unlink()
    path = str(tmp_path / "new" / "clicks.toml")
    told = CliRunner().invoke(main, ["sql", path, "select * from sessions_live", "--json"])
    line = "no batch is committed yet, so that the tables are empty; run `sessionlake run` first"
    assert (told.exit_code, told.stdout, told.stderr.splitlines()) == (0, "[]\n", ["no rows", line])
    missing = CliRunner().invoke(main, ["sessions", path, "--key", "u"])
    assert missing.exit_code == 6
    assert "has no batches yet; run `sessionlake run` first" in missing.stderr
