"""The standalone API in tests: calls that are played to it, and what each of them gave."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sessionlake.errors import BackPressureError

Row = dict[str, Any]
MINUTE = 60_000_000


class Taker:
    """What comes downstream: takes `room` outputs, then none until it is given more."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.taken: list[Row] = []
        self.refused: list[tuple[Row, str]] = []
        self.were_late: list[Row] = []

    def __call__(self, output: Row) -> bool:
        if self.room <= len(self.taken):
            return False
        self.taken.append(output)
        return True

    def error(self, message: Row, reason: str) -> None:
        self.refused.append((message, reason))

    def late(self, message: Row) -> None:
        self.were_late.append(message)


@contextmanager
def refused(*, taken: bool) -> Iterator[None]:
    """Expect back-pressure that says whether the message is in the state."""
    with pytest.raises(BackPressureError) as raised:
        yield
    assert raised.value.taken == taken
    assert "\n" not in str(raised.value)


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}
