"""Airflow's processes: started, started again when one dies, and ended with all that they left behind.

`airflow standalone` does neither: its SIGTERM leaves all components, a killed scheduler leaves its workers for ever.
"""

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil
from settings import dying_with_us

_PR_SET_CHILD_SUBREAPER = 36
_WORKER = "LocalExecutor"
# The API server reads the logs off the same disk: servers of them would only listen, and on all interfaces.
_ARGUMENTS = {"scheduler": ["--skip-serve-logs"], "triggerer": ["--skip-serve-logs"]}
_RESTARTS_AT_MOST = 5
_RESTART_WINDOW = 120.0


class ComponentError(Exception):
    """A component doesn't stay up."""


class Components:
    """The components of one Airflow, children of this process."""

    def __init__(self, env: Mapping[str, str], logs: Path, *, pause: float = 2.0, patience: float = 10.0) -> None:
        """Start components with `env`; wait `pause` seconds before a restart, `patience` for what was asked to end."""
        self._env, self._logs, self._pause, self._patience = env, logs, pause, patience
        self._running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self._due: dict[str, float] = {}
        self._deaths: dict[str, list[float]] = {}
        if sys.platform == "linux":
            # What a killed component leaves becomes our child: so it is found, and nothing outlives us.
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def start(self, *names: str) -> None:
        """Start components by the names of their airflow commands."""
        for name in names:
            with (self._logs / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    [*dying_with_us(), "airflow", name, *_ARGUMENTS.get(name, [])],
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # ctrl-C is for us to pass on
                )
            self._running[process.pid] = (name, process)
            (self._logs / f"{name}.pid").write_text(str(process.pid))

    def tend(self) -> None:
        """Reap what died, start components again after a pause, end idle workers of a scheduler that is gone."""
        for pid in self._reap():
            if pid in self._running:
                name, _ = self._running.pop(pid)
                self._died(name)
        now = time.monotonic()
        for name in [name for name, at in self._due.items() if at <= now]:
            del self._due[name]
            self.start(name)
        for orphan in self._orphans():
            with contextlib.suppress(psutil.Error):
                if _WORKER in " ".join(orphan.cmdline()) and not orphan.children():
                    orphan.kill()

    def stop(self) -> None:
        """End everything: tasks first, while the API server is there to take their state; what stays is killed."""
        server = next((process.pid for name, process in self._running.values() if name == "api-server"), None)
        rest = [process for process in _descendants() if process.pid != server and process.ppid() != server]
        _signal(rest, self._patience)
        _signal(_descendants(), self._patience / 2)
        for process in _descendants():
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(_descendants(), 5.0)
        self._reap()

    def _died(self, name: str) -> None:
        now = time.monotonic()
        deaths = [at for at in self._deaths.get(name, []) if now - at < _RESTART_WINDOW] + [now]
        self._deaths[name] = deaths
        if len(deaths) > _RESTARTS_AT_MOST:
            raise ComponentError(f"{name} ended {len(deaths)} times in two minutes; see {self._logs / name}.log")
        sys.stdout.write(f"airflow: {name} ended, starting it again\n")
        sys.stdout.flush()
        self._due[name] = now + self._pause

    def _reap(self) -> list[int]:
        """Collect children that ended, our own and those that came to us as orphans."""
        found: list[int] = []
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                found.append(reaped[0])
                if reaped[0] in self._running:
                    self._running[reaped[0]][1].returncode = os.waitstatus_to_exitcode(reaped[1])
        return found

    def _orphans(self) -> Iterable[psutil.Process]:
        return [child for child in psutil.Process().children() if child.pid not in self._running]


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _signal(processes: list[psutil.Process], seconds: float) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    psutil.wait_procs(processes, seconds)
