"""The settings of [emit] as workers get them: when windows are sent."""

from dataclasses import dataclass

OFF, BATCH, END, CLOSE = "off", "batch", "end", "close"


@dataclass(frozen=True)
class Policies:
    """When windows are sent; periods in microseconds."""

    early: str | int = OFF
    """Changes of current windows: off, with each batch, or once a period of the clock."""
    full: str = END
    """When a window is full: as the frontier passes its end, or as it closes."""
    late: str | int = 10_000_000
    """Changes of past windows: with each batch, once a period, or when they close."""
    tick_offset: int = 0
    """Periods begin at the epoch + it."""

    @property
    def updates(self) -> bool:
        """Whether every change is sent with its batch, and nothing has to wait."""
        return self.early == BATCH and self.late == BATCH
