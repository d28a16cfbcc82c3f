"""A plugin of pytest that writes the seconds of CPU and of the clock that each module takes: `make test-seconds`.

CPU seconds are of the worker's process and all that it started, a JVM too: they hardly change if other processes share the machine.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

FILE = Path(__file__).with_name("seconds.json")
_last = 0.0


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and all below it, those that ended and were waited for too."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return total


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Give the report of each phase the CPU seconds since the report before."""
    global _last
    report: Any = yield
    now = _cpu_seconds()
    # A process that ended without being waited for takes its seconds along.
    report.cpu_seconds, _last = max(now - _last, 0.0), now
    return report


class Totals:
    """Sums of the reports of all workers by module."""

    def __init__(self) -> None:
        self.modules: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def pytest_runtest_logreport(self, report: Any) -> None:
        module = self.modules[report.nodeid.partition("::")[0]]
        module[0] += report.cpu_seconds
        module[1] += report.duration

    def pytest_sessionfinish(self) -> None:
        found = sorted(self.modules.items(), key=lambda item: -item[1][1])
        rows = [f"  {json.dumps(name)}: [{cpu:.1f}, {clock:.1f}]" for name, (cpu, clock) in found]
        target = Path(os.environ.get("MODULE_SECONDS", FILE))
        target.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def pytest_configure(config: pytest.Config) -> None:
    global _last  # noqa: PLW0603 (a worker is a process of its own)
    _last = _cpu_seconds()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Totals())
