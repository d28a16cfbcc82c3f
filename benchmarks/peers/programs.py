"""Peers that are programs of their own: run, and watched from batch to batch by what they print."""

import os
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.cpu import tree_cpu_s
from infra.compiler import class_path
from infra.kafka.broker import die_with_parent
from sessionlake.jars.java import java_command

HERE = Path(__file__).resolve().parent
_OPENS = ["java.base/java.lang", "java.base/java.util", "java.base/java.time", "java.base/java.nio"]


def java_program(jars: Path, source: str, home: Path, *, heap: str) -> list[str]:
    """Compile a program beside this module; return its command."""
    path = class_path(jars, [HERE / source], home / "classes")
    flags = [f"-Xmx{heap}", "-XX:+UseParallelGC", f"-Djava.io.tmpdir={home}"]
    flags += [f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS]
    return [java_command(), *flags, "-cp", path, source.removesuffix(".java")]


def watched(command: list[str], home: Path, variables: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a program that prints "start", "batch ..." after each batch, and "end"; return the seconds of each batch, and CPU seconds a batch from the end of the first quarter on.

    CPU is that of this process and all it started, a broker too. RuntimeError with the end of its log where it fails.
    """
    log = home / "peer.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(variables or {})},
            preexec_fn=die_with_parent,  # noqa: PLW1509 (sets one flag; no lock is taken)
        )
        at: list[tuple[float, float]] = []
        ended = 0.0
        assert process.stdout  # noqa: S101 (it is a pipe)
        for line in process.stdout:
            if line.startswith(("start", "batch")):
                at.append((time.time(), tree_cpu_s()))
            ended = time.time() if line.startswith("end") else ended
    if process.wait() or not ended:
        raise RuntimeError(f"{command[0]}: it failed:\n{_said(log)}")
    first = max(1, (len(at) - 1) // 4)
    return {
        "seconds": [round(b - a, 3) for (a, _), (b, _) in pairwise(at)],
        "cpu_s": round((at[-1][1] - at[first][1]) / max(1, len(at) - 1 - first), 3),
        "to_the_end_s": round(ended - at[-1][0], 3),
    }


def _said(log: Path) -> str:
    """Return what errors say, without the places that they passed."""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([line for line in lines if not line.startswith("\tat ")][-20:])
