"""The wheel without any extra: its size, its commands, and tests of its parts, where neither pyspark nor pandas is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.package.support import ROOT, build_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
UV = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
MOST_MB = 560
MODULES = (
    "tests/cli/test_try.py",
    "tests/columnar/test_arrays.py",
    "tests/config",
    "tests/local/test_entries.py",
    "tests/propose/test_measure.py",
    "tests/standalone/test_cases.py",
    "tests/testing",
)
"""Tests of what needs no Spark. One that compares with pandas or Spark is left out by its name."""
COMPARED = "not tables_have and not pandas and not spark"
EVENTS = "".join(
    f'{{"user_id": "u{number % 7}", "at": "2026-01-31T{number % 24:02}:00:00Z", "price": {number}}}\n'
    for number in range(99)
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the wheel alone."""
    root = tmp_path_factory.mktemp("core")
    wheel = build_wheel(root)
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, root / "venv"], check=True)
    python = root / "venv" / "bin" / "python"
    subprocess.run([UV, "pip", "install", "-q", "--python", python, wheel], check=True, timeout=600)
    return python


def clean() -> dict[str, str]:
    hidden = ("PYTHON", "VIRTUAL_ENV", "SESSIONLAKE", "SPARK", "JAVA_HOME")
    return {name: text for name, text in os.environ.items() if not name.startswith(hidden)} | {"PATH": "/nowhere"}


def call(python: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [str(python.with_name("sessionlake")), *words]
    return subprocess.run(command, cwd=folder, env=clean(), capture_output=True, text=True, check=False, timeout=120)


def test_it_is_small_and_has_no_spark(python: Path) -> None:
    bytes_ = sum(
        file.stat().st_size for file in python.parents[1].rglob("*") if file.is_file() and not file.is_symlink()
    )
    assert bytes_ < MOST_MB << 20
    named = "import importlib.util as u; print([n for n in ('pyspark', 'delta', 'py4j', 'pandas') if u.find_spec(n)])"
    assert subprocess.run([python, "-c", named], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_commands(python: Path, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.json").write_text(EVENTS)
    tried = call(python, tmp_path, "try", "events")
    assert tried.returncode == 0, tried.stderr
    assert "99 events = 99 accepted + 0 dead" in tried.stdout
    assert call(python, tmp_path, "init", "events", "-o", "events.toml").returncode == 0
    checked = call(python, tmp_path, "check", "events.toml")
    assert checked.returncode == 0
    assert "run: pip install 'sessionlake[spark]'" in checked.stderr
    ran = call(python, tmp_path, "run", "events.toml", "--once")
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
    assert ran.stderr.endswith("run: pip install 'sessionlake[spark]'\n")
    for words, code in ((["show"], 0), (["plan"], 0), (["status"], 6), (["sql", "select 1"], 6)):
        done = call(python, tmp_path, words[0], "events.toml", *words[1:])
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


def test_the_parts_pass_their_tests(python: Path) -> None:
    tools = ["pytest", "pytest-timeout", "hypothesis", "tomli-w", "pyyaml"]
    subprocess.run([UV, "pip", "install", "-q", "--python", python, *tools], check=True, timeout=600)
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "-k", COMPARED, *MODULES],
        cwd=ROOT,
        env={**clean(), "PATH": os.environ["PATH"], "SESSIONLAKE_QUIET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout[-4000:]
