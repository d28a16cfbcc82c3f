"""Benchmarks are run by hand and seldom: here at least what they import from the package is there, and each has a reader."""

import importlib
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks import processes, project
from benchmarks.memory import peak_memory
from benchmarks.processes import TooMuchMemoryError, measure
from benchmarks.trees import this_tree
from sessionlake.config.store_engines import ENGINES
from tests.infra.infra_files import ROOT

FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts): file
    for file in sorted((ROOT / "benchmarks").rglob("*.py"))
    # One with packages of its own runs in an environment of its own.
    if file.name != "__init__.py" and not file.read_text().startswith("# /// script")
}
CITING = (ROOT / "Makefile", *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("name", FILES)
def test_a_benchmark_can_be_started(name: str) -> None:
    importlib.import_module(name)


def test_the_sizes_of_stores_can_be_measured() -> None:
    """It calls the engine's tasks by hand, so that a change of these breaks it unnoticed."""
    command = [sys.executable, "-m", "benchmarks.stored", "--sessions", "2000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    sets = [json.loads(line.partition("{")[1] + line.partition("{")[2]) for line in done.stdout.splitlines()]
    assert [found["sessions"] > 0 < found["store_bytes_per_session"] for found in sets] == [True] * 3 * len(ENGINES)


def test_a_measurement_that_takes_too_much_memory_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, child = tmp_path / "program", tmp_path / "child"
    program.write_text(f"#!/bin/sh\nsleep 300 &\necho $! > {child}\nwait\n")
    program.chmod(0o700)
    work = tmp_path / "work"
    work.mkdir()

    def peak_once_begun(**asked: Any) -> Any:
        while not child.exists() or not child.read_text():
            pass
        return peak_memory(0.05, **asked)

    monkeypatch.setattr(processes, "peak_memory", peak_once_begun)
    with pytest.raises(TooMuchMemoryError, match=r"^bench: idle of ours took more than 0 GB of memory, and was ended$"):
        measure(replace(this_tree(), python=str(program)), {"kind": "idle"}, work, limit_s=60, most_mb=0)
    assert list(work.iterdir()) == []
    number = int(child.read_text())
    # Whoever adopts it may not have waited for it yet.
    assert not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_a_stream_ends_with_its_benchmark_that_a_shell_runs_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "_SETTLED_S", 0)
    others, before = psutil.Process().children(), signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        found = project.measured(1, seconds=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert found["memory_mb"]["java"] > 0
    assert psutil.Process().children() == others


def test_a_command_ends_with_a_body_that_fails() -> None:
    with (
        pytest.raises(ValueError, match=r"^so it is$"),
        processes.command("run", "/dev/null", stderr=subprocess.DEVNULL) as run,
    ):
        raise ValueError("so it is")
    assert run.returncode == -signal.SIGKILL


def is_named(module: str, text: str) -> bool:
    """Return whether a text names a module, dotted or as a path."""
    return re.search(rf"{re.escape(module)}\b|{module.replace('.', '/')}\.py", text) is not None


def is_used(module: str, by: Path) -> bool:
    """Return whether a script imports a module, or has it by name among those that it runs in processes of their own."""
    folder, _, name = module.rpartition(".")
    short, text = module.removeprefix("benchmarks."), by.read_text()
    return (
        is_named(module, text)
        or f'"{short}"' in text
        or re.search(rf"from {re.escape(folder)} import .*\b{name}\b", text) is not None
    )


def test_a_benchmark_that_no_page_and_no_target_cites_is_gone() -> None:
    texts = "\n".join(file.read_text() for file in CITING if file.name != "CHANGELOG.md")
    there = {module for module in FILES if is_named(module, texts)}
    while more := {m for m in FILES.keys() - there if any(is_used(m, FILES[by]) for by in there)}:
        there |= more
    assert FILES.keys() - there == set()
