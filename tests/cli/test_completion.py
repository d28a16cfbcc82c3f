"""Completion in a real bash; zsh and fish run their scripts if they are on the machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sessionlake.cli import main
from sessionlake.cli.installation import SHELLS
from sessionlake.cli.registry import GROUPS
from sessionlake.jobs.registry import JOBS

CONFIG = '[source]\nkind = "files"\npath = "e"\n'
SCRIPT = 'eval "$(cat completion.bash)"; complete -p sessionlake >&2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sessionlake_completion sessionlake; printf "%s\\n" "${COMPREPLY[@]}"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a project of two pipelines, a config, bash's script, and the program on PATH."""
    tmp_path = tmp_path_factory.mktemp("shell")
    (tmp_path / "completion.bash").write_text(CliRunner().invoke(main, ["completion", "bash"]).stdout)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "sessionlake"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sessionlake "$@"\n')
    program.chmod(0o755)
    (tmp_path / "pipelines").mkdir()
    for name in ("project", "visits", "hours"):
        text = f'[pipeline]\nname = "late_{name}"\n{CONFIG}' if name == "hours" else "" if name == "project" else CONFIG
        (tmp_path / "pipelines" / f"{name}.toml").write_text(text)
    (tmp_path / "pip.toml").write_text(CONFIG)
    (tmp_path / "pips").mkdir()
    return tmp_path


def completed(folder: Path, *words: str) -> list[str]:
    """Return what bash proposes for the last of the words of a line."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-c", SCRIPT, "bash", "sessionlake", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder, env={**os.environ, "PATH": path}
    )
    assert done.stderr.startswith("complete -o nosort -F _sessionlake_completion sessionlake\n")
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not on this machine")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["comp"], ["compact", "completion"]),
        (["completion", ""], list(SHELLS)),
        (["status", "pip"], ["pip.toml", "pipelines"]),
        (["bootstrap", "pip"], ["pip.toml"]),
        (["graph", "pip"], ["pipelines"]),
        (["compact", "pipelines/"], ["pipelines/hours.toml", "pipelines/visits.toml"]),
        (["run", "pipelines", "--only", ""], ["late_hours", "visits"]),
        (["run", "pipelines", "--only", "visits,"], ["visits,late_hours"]),
        (["run", "nothing", "--only", ""], []),
        (["sql", "pip.toml", "--form"], ["--format"]),
        (["sql", "pip.toml", "--format", "c"], ["csv"]),
    ],
)
def test_bash_completes(words: list[str], expected: list[str], folder: Path) -> None:
    assert completed(folder, *words) == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not on this machine")
def test_bash_knows_all_commands_and_jobs(folder: Path) -> None:
    found = completed(folder, "")
    assert found == [name for names in GROUPS.values() for name in names]
    assert {job.command for job in JOBS} <= {*found}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_one_of_its_shell(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert f"_SESSIONLAKE_COMPLETE={shell}_complete" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


def test_another_shell_is_refused() -> None:
    done = CliRunner().invoke(main, ["completion", "tcsh"])
    assert (done.exit_code, "'bash', 'zsh', 'fish'" in done.stderr) == (2, True)
