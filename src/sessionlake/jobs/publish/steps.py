"""The steps of sinks that get the rows by which two batches differ."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Step:
    """A step that was made."""

    batch_id: int
    """The batch whose rows the sink has now."""
    rows: int | None
    """How many rows are new or changed; None if all were loaded."""
    deleted: int = 0
    """How many rows are gone."""


class Stepped(Protocol):
    """A sink that goes forward in steps, each to a later batch."""

    @property
    def every(self) -> str:
        """The least time between two steps, as a config has it."""

    def step(self, *, anew: bool = False) -> Step | None:
        """Bring the sink to the last batch; None if it is there. With `anew` it gets all rows."""
