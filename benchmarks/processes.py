"""A measurement in a process of its own: a fresh JVM, its whole tree's CPU time and memory, and nothing left behind."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.memory import MEASURED, peak_memory
from benchmarks.trees import Tree

_LIMIT_S = 1200


@contextmanager
def input_folder() -> Iterator[Path]:
    """Give a new folder for a run's inputs, which goes at the run's end, also where it is ended by SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(tree: Tree, case: dict[str, Any], work: Path, limit_s: float = _LIMIT_S) -> dict[str, Any]:
    """Run a case of benchmarks.child on a tree's package, in a folder of its own below `work`; return what it found.

    `peak_memory_mb` is added to it. SystemExit with the end of its log where it fails.
    """
    with tempfile.TemporaryDirectory(prefix="run-", dir=work) as folder:
        home = Path(folder)
        # Not `folder`: the path of a Unix socket below it has 108 letters at the most.
        environment = {**tree.environment(), "TMPDIR": str(work), "SPARK_LOCAL_DIRS": folder}
        found, log = home / "found.json", home / "log"
        command = [tree.python, "-m", "benchmarks.child", json.dumps({**case, "home": folder}), str(found)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                with peak_memory(pid=process.pid, until=home / MEASURED) as memory:
                    process.wait(limit_s)
            finally:
                _end(process)
        if process.returncode or not found.exists():
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise SystemExit(f"bench: {case['kind']} of {tree.name} failed:\n{tail}")
        result: dict[str, Any] = json.loads(found.read_text())
        if result.pop("package", expected := str(tree.source / "sessionlake")) != expected:
            raise SystemExit(f"bench: {case['kind']} of {tree.name} ran another tree's package")
        return {**result, "peak_memory_mb": memory}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a measurement: after one that ran to its end, nothing."""
    if process.poll() is None:
        for one in [*psutil.Process(process.pid).children(recursive=True), process]:
            try:
                one.kill()
            except psutil.Error:
                continue
        process.wait()
