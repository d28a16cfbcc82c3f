"""Named points at which a test may kill the process, to prove that a crash there loses nothing."""

import os
import signal
from pathlib import Path

_VARIABLE = "SESSIONLAKE_KILL_AT"
_ONCE = "SESSIONLAKE_KILL_ONCE"


def hit(name: str) -> None:
    """Kill this process with SIGKILL if the environment names this point.

    SESSIONLAKE_KILL_AT is "point" or "point:n" (the n-th time); where SESSIONLAKE_KILL_ONCE names a file, the kill
    happens only while that file exists, and removes it first.
    """
    wanted = os.environ.get(_VARIABLE)
    if not wanted or wanted.partition(":")[0] != name:
        return
    nth = int(wanted.partition(":")[2] or 1)
    _seen[name] = _seen.get(name, 0) + 1
    if _seen[name] != nth:
        return
    once = os.environ.get(_ONCE)
    if once:
        try:
            Path(once).unlink()
        except FileNotFoundError:
            return
    os.kill(os.getpid(), signal.SIGKILL)


_seen: dict[str, int] = {}
