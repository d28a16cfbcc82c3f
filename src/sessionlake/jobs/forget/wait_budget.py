"""How long a run waits for others: for the stream, and for jobs that change the same files."""

import time
from collections.abc import Callable
from dataclasses import dataclass

_POLL_S = 2.0
Waits = Callable[[], bool]
"""Waits a moment, or says False if the time to wait is over."""


@dataclass
class WaitBudget:
    """How long a run may wait for others, all its waits together, by which clock."""

    wait_us: int
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    waited_s: float = 0

    def until_late(self) -> Waits:
        """Return a function that waits a moment, or returns False if the time to wait is over.

        The run's own work between two waits is not counted.
        """
        return self._wait

    def _wait(self) -> bool:
        if self.waited_s > self.wait_us / 1e6:
            return False
        began = self.clock()
        self.sleep(_POLL_S)
        self.waited_s += self.clock() - began
        return True
