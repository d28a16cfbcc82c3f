"""What runs where neither pyspark nor Java is installed, and the line of what does not."""

from pathlib import Path

import pytest

from tests.cli.support import Project
from tests.without_spark import call

EXTRA = "run: pip install 'sessionlake[spark]'"
PYTHON = """
import sys
import sessionlake, sessionlake.standalone, sessionlake.stores, sessionlake.client
from sessionlake.testing import Harness
config = {
    "source": {"kind": "files", "path": "clicks", "format": "json"},
    "event": {"key": "user", "time": "at", "time_unit": "us"},
    "session": {"gap": "30 seconds"},
    "aggregates": {"pages": "count_distinct(page)", "longest": "max(page)"},
}
output = Harness(config).process([{"user": "ann", "at": 0, "page": "a"}, {"user": "ann", "at": 20_000_000, "page": "b"}])
print([(row["pages"], row["longest"]) for row in output.changes])
print(sessionlake.check("clicks.toml").ok)
print(sorted({"pyspark", "delta", "pandas"} & {*sys.modules}))
"""


def test_a_config_is_written_tried_and_checked(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    for number in range(1, 9):
        project.add_events(number)
    written = call(project.root, "init", "events", "--key", "user", "--time", "time", "-o", "new.toml")
    assert (written.returncode, written.stderr) == (0, "")
    tried = call(project.root, "try", "events", "--key", "user", "--time", "time")
    assert (tried.returncode, tried.stderr) == (0, "")
    assert "9 events = 9 accepted + 0 dead" in tried.stdout
    for config in ("clicks.toml", "new.toml"):
        checked = call(project.root, "check", config)
        assert checked.returncode == 0
        assert checked.stdout.startswith(f"{config}: nothing is wrong")
        spark, java = checked.stderr.splitlines()
        assert spark == (
            "sessionlake: warning: `sessionlake run` will need more: delta-spark, pandas and pyspark are not installed; "
            f"{EXTRA}"
        )
        assert java.startswith("sessionlake: warning: `sessionlake run` will need more: Java: none on PATH")
    done = call(project.root, "--version")
    assert done.returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ["run", "clicks.toml", "--once"],
        ["bootstrap", "clicks.toml"],
        ["compact", "clicks.toml"],
        ["rebuild", "clicks.toml"],
        ["backup", "clicks.toml", "copy"],
        ["publish", "clicks.toml"],
        ["jars"],
        ["fast-start"],
        ["demo"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_needs_spark_names_the_extra(tmp_path: Path, words: list[str]) -> None:
    project = Project(tmp_path / "project")
    done = call(project.root, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.endswith(f"{EXTRA}\n")


def test_a_problem_of_the_config_is_a_problem_all_the_same(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    project.edit("sum(v)", "sum(w)")
    done = call(project.root, "check", "clicks.toml")
    assert done.returncode == 2
    assert "reads 'w', which is no column" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["status", "clicks.toml"], 6, "has no batches yet"),
        (["sql", "clicks.toml", "select 1"], 6, "has no sessions yet"),
        (["show", "clicks.toml"], 0, ""),
        (["plan", "clicks.toml"], 0, ""),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_what_reads_runs(tmp_path: Path, words: list[str], code: int, line: str) -> None:
    project = Project(tmp_path / "project")
    done = call(project.root, *words)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert line in done.stderr


def test_programs_need_none_either(tmp_path: Path) -> None:
    import subprocess
    import sys

    from tests.without_spark import environment

    project = Project(tmp_path / "project")
    (tmp_path / "hiding").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PYTHON],
        cwd=project.root,
        env=environment(tmp_path / "hiding"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["[(2, 'b')]", "True", "[]"], done.stderr
