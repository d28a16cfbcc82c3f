"""A measurement in a process of its own: a fresh JVM, its whole tree's CPU time and memory, and nothing left behind."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.memory import MEASURED, peak_memory
from benchmarks.trees import Tree

_LIMIT_S = 1200
MOST_MB = 0.8 * psutil.virtual_memory().total / 1e6
"""Memory that a measurement may take. One that takes all would stop the machine, the benchmark and its other measurements, too."""


class TooMuchMemoryError(SystemExit):
    """A measurement had more memory than it may take, and was ended. A run that can't go on without it ends with this line."""


@contextmanager
def input_folder() -> Iterator[Path]:
    """Give a new folder for a run's inputs, which goes at the run's end, also where it is ended by SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(
    tree: Tree, case: dict[str, Any], work: Path, limit_s: float = _LIMIT_S, most_mb: float = MOST_MB
) -> dict[str, Any]:
    """Run a case of benchmarks.child on a tree's package, in a folder of its own below `work`; return what it found.

    `peak_memory_mb` is added to it. SystemExit with the end of its log if it fails, subprocess.TimeoutExpired after `limit_s`,
    TooMuchMemoryError if it takes more than `most_mb` of memory.
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
            over = threading.Event()

            def end_it() -> None:
                over.set()
                _end(process)

            try:
                with peak_memory(pid=process.pid, until=home / MEASURED, most_mb=most_mb, too_much=end_it) as memory:
                    process.wait(limit_s)
            finally:
                _end(process)
        if over.is_set():
            raise TooMuchMemoryError(
                f"bench: {case['kind']} of {tree.name} took more than {most_mb / 1000:.3g} GB of memory, and was ended"
            )
        if process.returncode or not found.exists():
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise SystemExit(f"bench: {case['kind']} of {tree.name} failed:\n{tail}")
        result: dict[str, Any] = json.loads(found.read_text())
        if result.pop("package", expected := str(tree.source / "sessionlake")) != expected:
            raise SystemExit(f"bench: {case['kind']} of {tree.name} ran another tree's package")
        return {**result, "peak_memory_mb": memory}


@contextmanager
def command(*words: str, nice: int = 0, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """Run a command of sessionlake's while the body runs, then end it by SIGTERM: what a shell runs in the background ignores ctrl-C."""
    lower = ["nice", "-n", str(nice)] if nice else []
    process = subprocess.Popen([*lower, sys.executable, "-m", "sessionlake", *words], text=True, **options)
    try:
        yield process
        process.terminate()
        process.wait(120)
    finally:
        _end(process)


def _end(process: subprocess.Popen[Any]) -> None:
    """End what is left of a measurement: after one that ran to its end, nothing."""
    if process.poll() is None:
        tree: list[psutil.Process] = []
        with suppress(psutil.Error):  # it has ended meanwhile
            tree = psutil.Process(process.pid).children(recursive=True)
        for one in (*tree, process):
            with suppress(psutil.Error):
                one.kill()
        process.wait()
