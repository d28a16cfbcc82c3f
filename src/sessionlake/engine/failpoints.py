"""Named points at which a test may kill the process, to prove that a crash there loses nothing."""

import os
import signal
from pathlib import Path

_VARIABLE = "SESSIONLAKE_KILL_AT"
_ONCE = "SESSIONLAKE_KILL_ONCE"
_EXECUTOR = "SESSIONLAKE_KILL_EXECUTOR"


def warning() -> str | None:
    """Return the message for a driver's start if the environment names a failpoint; None if it names none."""
    wanted = os.environ.get(_VARIABLE)
    return (
        f"warning: {_VARIABLE}={wanted} is set: this process kills itself there; unset it outside of tests"
        if wanted
        else None
    )


def hit(name: str) -> None:
    """Kill this process with SIGKILL if the environment names this point.

    SESSIONLAKE_KILL_AT is "point" or "point:n" (the n-th time); if SESSIONLAKE_KILL_ONCE names a file, times count
    and the kill happens only while that file exists, and removes it first. If SESSIONLAKE_KILL_EXECUTOR is set,
    a Python worker takes its executor's JVM with it.
    """
    wanted = os.environ.get(_VARIABLE)
    if not wanted or wanted.partition(":")[0] != name:
        return
    once = os.environ.get(_ONCE)
    if once and not Path(once).exists():
        return
    nth = int(wanted.partition(":")[2] or 1)
    _seen[name] = _seen.get(name, 0) + 1
    if _seen[name] != nth:
        return
    if once:
        try:
            Path(once).unlink()
        except FileNotFoundError:
            return
    if os.environ.get(_EXECUTOR):
        # The worker's parent is the daemon that forked it, whose parent is the JVM.
        status = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


_seen: dict[str, int] = {}
