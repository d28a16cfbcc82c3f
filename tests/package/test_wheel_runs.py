"""The wheel in an empty environment and directory, as a user has it after pip install."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.package.support import ROOT, build_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
UV = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs the installed command in an empty directory; nothing of the checkout is within its reach."""
    root = tmp_path_factory.mktemp("user")
    wheel = build_wheel(root)
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, root / "venv"], check=True)
    python = root / "venv" / "bin" / "python"
    subprocess.run([UV, "pip", "install", "-q", "--python", python, wheel], check=True, timeout=600)
    empty = root / "empty"
    empty.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "SESSIONLAKE", "SPARK"))}

    def call(*words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        command = [str(python.with_name("sessionlake")), *words]
        return subprocess.run(
            command, cwd=empty, env={**env, **more}, capture_output=True, text=True, check=False, timeout=400
        )

    return call


def test_help(run: Run) -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "demo" in done.stdout


def test_demo(run: Run) -> None:
    done = run("demo")
    assert (done.returncode, done.stderr) == (0, "")
    for said in (
        "sessions of",
        "pip install 'sessionlake[quality]', and the demo runs it too",
        "picture of the sessions over time: pip install 'sessionlake[demo]'",
        "  ../venv/bin/sessionlake status demo/commits.toml",
    ):
        assert said in done.stdout
    again = run("run", "demo/commits.toml", "--once")
    assert (again.returncode, again.stderr) == (0, "")


def test_what_is_missing_is_one_line(run: Run, tmp_path: Path) -> None:
    done = run("quality", "demo/commits.toml")
    said = (
        "sessionlake: quality: Python module 'great_expectations' is missing; run: pip install 'sessionlake[quality]'\n"
    )
    assert (done.returncode, done.stderr) == (2, said)
    done = run("init", "kafka://127.0.0.1:1/topic")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "pip install 'sessionlake[kafka]'" in done.stderr
    done = run("compact", "demo/commits.toml", JAVA_HOME=str(tmp_path))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(f"sessionlake: Java: JAVA_HOME={tmp_path} holds none; install OpenJDK 17")
