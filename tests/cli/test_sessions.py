"""`sessions` and reading as a whole: what is printed, and that no JVM is started for it."""

import json
import subprocess
import sys
from base64 import b64decode

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
    (line,) = result.stdout.splitlines()
    session = json.loads(line)
    assert isinstance(b64decode(session.pop("state")), bytes)
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
    result = used.call("sessions", *arguments, "--json")
    assert (result.exit_code, result.stdout.count("\n")) == (0, found)


def test_a_key_from_standard_input(used: Project) -> None:
    result = CliRunner().invoke(main, ["sessions", str(used.path), "--key", "-"], input="u\n")
    assert result.exit_code == 0
    assert "2023-11-14 22:13:20" in result.stdout
    assert "bytes>" in result.stdout


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
