"""Whether sessions hold exactly the accepted events: one rule for `status` and `quality`, whichever engine reads the tables."""

from dataclasses import dataclass

CORRECTIONS_SQL = "select count(*), coalesce(sum(case when kind in ('advance', 'tick', 'flush') then 1 else 0 end), 0) from corrections"
"""How many corrections there are, and how many of them change no row by themselves: they move the watermark or make a batch."""
OUTCOMES = (
    "coalesce(sum(case when kind in ('restate', 'advance', 'tick', 'flush') then 1 else 0 end), 0)",
    "coalesce(sum(case when kind in ('restate', 'advance', 'tick', 'flush') then 0 else 1 end), 0)",
    "coalesce(sum(case when kind = 'restate' then event_count end), 0)",
)
"""Sums over applied corrections in correction_outcomes: corrections that removed nothing, corrections that may have removed rows, and restated events."""


@dataclass(frozen=True)
class Accepted:
    """The numbers of the committed batches, the control input and correction outcomes from which the events in sessions follow."""

    accepted: int
    applied: int
    """Corrections that took effect, a topic's tombstones among them, as batches count them."""
    corrections: int
    """Rows of the control input, whether read yet or not."""
    advances: int
    """Rows of the control input that change no row by themselves."""
    adding: int
    removing: int
    restated: int
    """As OUTCOMES has them; 0 if there is no such table, or no row of the batches before it."""
    forgotten: bool
    """Whether keys were ever erased."""
    expired: int = 0
    """Events of the sessions that [ttl] has removed."""

    @property
    def events(self) -> int | None:
        """How many events sessions must hold; None if not all that changed them is known, or it may have removed some."""
        if self.forgotten or self.removing:
            return None
        told = self.adding == self.applied
        only_advances = self.corrections == self.advances and self.applied <= self.advances
        return self.accepted + self.restated - self.expired if told or only_advances else None

    def agrees_with(self, events: int) -> bool:
        """Say whether sessions may hold this number of events: exactly the number that they must hold, if that is known."""
        return self.events in (None, events)
