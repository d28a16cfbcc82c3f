"""Every version of the SQL parser that `pyproject.toml` allows gives the same translations, and refuses the same (rule 464)."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.columnar.sql_draws import ASKED, TYPES, drawn
from tests.columnar.sql_draws import NOT_READ as EXPRESSIONS_NOT_READ
from tests.columnar.translations import all_of
from tests.propose.query_variants import NOT_READ, READ

ROOT = Path(__file__).parents[2]
_ALLOWED = re.search(r'"sqlglot>=(?P<major>\d+)\.(?P<minor>\d+),<\d+"', (ROOT / "pyproject.toml").read_text())
_LOCKED = re.search(r'name = "sqlglot"\nversion = "\d+\.(?P<minor>\d+)\.', (ROOT / "uv.lock").read_text())
assert _ALLOWED is not None
assert _LOCKED is not None
MAJOR, LEAST, NEWEST = int(_ALLOWED["major"]), int(_ALLOWED["minor"]), int(_LOCKED["minor"])
WANTED = [
    *(f"=={MAJOR}.{minor}.*" for minor in range(LEAST, NEWEST + 1)),
    f">{MAJOR}.{NEWEST},<{MAJOR + 1}",
]
"""Each minor version that is allowed, from the least to the one of `uv.lock`, and the newest of all."""


def fetched(wanted: str, directory: Path) -> None:
    """Install a version into a directory; skip the test if it can't be fetched."""
    uv = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    command = [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(directory), "--python", sys.executable]
    try:
        subprocess.run([*command, f"sqlglot{wanted}"], check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError):
        pytest.skip(f"sqlglot{wanted} can't be fetched")


@pytest.mark.slow
@pytest.mark.parametrize("wanted", WANTED)
def test_each_version_of_the_parser_reads_the_same(wanted: str, tmp_path: Path) -> None:
    fetched(wanted, tmp_path)
    expressions = [*(text for text, _ in ASKED), *(text for text, _ in drawn(11, 2000)), *EXPRESSIONS_NOT_READ]
    queries = [*READ, *NOT_READ]
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src"), str(ROOT)])
    asked = json.dumps({"expressions": expressions, "queries": queries})
    program = [sys.executable, "-m", "tests.columnar.translations"]
    done = subprocess.run(
        program, input=asked, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    theirs: dict[str, Any] = json.loads(done.stdout)
    ours = all_of(expressions, queries, TYPES)
    assert {text: (ours[text], theirs[text]) for text in ours if ours[text] != theirs[text]} == {}
    assert all(ours[text] is not None for text, _ in ASKED)
