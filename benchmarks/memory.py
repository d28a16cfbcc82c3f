"""Peak resident memory of a process and all it started, sampled."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

MEASURED = "measured"
"""The file, in a measurement's folder, that ends the sampling of its memory."""


def end_sampling(home: str) -> None:
    """End the sampling of a measurement's memory, for example before its results are added up."""
    Path(home, MEASURED).touch()


@contextmanager
def peak_memory(
    every_seconds: float = 2.0,
    pid: int | None = None,
    until: Path | None = None,
    most_mb: float = math.inf,
    too_much: Callable[[], None] = lambda: None,
) -> Iterator[dict[str, float]]:
    """Sample a process, by default this one, while the block runs, and at most until a file exists.

    Once it has more than `most_mb` in total, `too_much` is called, and no sample follows.

    Afterwards the dict holds the peak, in MB: total, jvm, python (driver and workers).
    """
    peak = {"total": 0.0, "jvm": 0.0, "python": 0.0}
    stop = threading.Event()

    def sample() -> None:
        me = psutil.Process(pid)
        while not stop.wait(every_seconds):
            if until is not None and until.exists():
                return
            used = {"jvm": 0.0, "python": 0.0}
            try:
                tree = [me, *me.children(recursive=True)]
            except psutil.Error:  # it has ended
                return
            for process in tree:
                try:
                    kind = "jvm" if process.name().startswith("java") else "python"
                    # Forked workers share pages with their daemon: PSS counts each page once.
                    used[kind] += process.memory_full_info().pss / 1e6
                except psutil.Error:
                    continue
            used["total"] = sum(used.values())
            for name, value in used.items():
                peak[name] = max(peak[name], round(value, 1))
            if used["total"] > most_mb:
                too_much()
                return

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()
