"""Histories by their seeds."""

import tempfile
from pathlib import Path

import pytest

from tests.store.crash.history import History


def run_history(seed: int) -> int:
    """Run the history of a seed; return how many steps it has. An error says the seed, the last step and the fault."""
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        history = History(seed, Path(root), patch)
        try:
            history.run()
        except BaseException as error:
            error.add_note(f"seed {seed}, step {len(history.log)}: {history.log[-1:]}, fault: {history.disk.failed}")
            raise
        return len(history.log)
