"""Check whether a store holds keys, without a change to it, even while another process has it open."""

import time
from pathlib import Path

import pyarrow as pa

from sessionlake.store.directory import CURRENT
from sessionlake.store.files import State
from sessionlake.store.runs import DamagedError, Run

_ATTEMPTS = 50
_PAUSE_S = 0.1


def may_hold(path: Path, keys: list[bytes]) -> bool:
    """Say whether a store has one of the keys in any of its segments, or can't be read, so that nobody knows.

    Another process may write to the store meanwhile.
    """
    for _ in range(_ATTEMPTS):
        if not (path / CURRENT).exists():
            return False
        try:
            segments = State.read(path).segments.values()
            return any(levels.get(key) is not None for levels in segments for key in keys)
        except FileNotFoundError:  # it was replaced meanwhile
            time.sleep(_PAUSE_S)
        except (DamagedError, OSError):
            return True
    return True


def run_holds(file: Path, keys: list[bytes]) -> bool:
    """Say whether a run has one of the keys, even if a newer one hides it, or another one has been made of it. Raises DamagedError, and FileNotFoundError."""
    run = Run(file)
    return any(run.row_of(key) >= 0 for key in keys)


def run_keys(file: Path) -> pa.Array:
    """Return all keys of a run, as `run_holds` looks at them; raises what that does."""
    run = Run(file)
    return run.between(0, run.rows).keys
