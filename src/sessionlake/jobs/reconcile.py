"""Whether sessions hold the events that were accepted: one rule for `status`, `quality` and whatever engine they read with."""

from dataclasses import dataclass

CORRECTIONS_SQL = "select count(*), coalesce(sum(case when kind in ('advance', 'tick', 'flush') then 1 else 0 end), 0) from corrections"
"""How many corrections there are, and how many of them change no row by themselves: they move the watermark or make a batch."""
OUTCOMES = (
    "coalesce(sum(case when kind in ('restate', 'advance', 'tick', 'flush') then 1 else 0 end), 0)",
    "coalesce(sum(case when kind in ('restate', 'advance', 'tick', 'flush') then 0 else 1 end), 0)",
    "coalesce(sum(case when kind = 'restate' then event_count end), 0)",
)
"""Of correction_outcomes: how many corrections removed nothing, how many may have, and the events restated; all of those applied."""


@dataclass(frozen=True)
class Accepted:
    """What the committed batches, the control input and the outcomes of corrections say of the events in sessions."""

    accepted: int
    applied: int
    """Corrections that took effect, a topic's tombstones among them, as batches count them."""
    corrections: int
    """Rows of the control input, whether read yet or not."""
    advances: int
    """Those of them that change no row by themselves."""
    adding: int
    removing: int
    restated: int
    """As OUTCOMES has them; 0 where there is no such table, or no row of the batches before it."""
    forgotten: bool
    """Whether keys were ever erased."""
    expired: int = 0
    """Events of the sessions that [ttl] has removed."""

    @property
    def events(self) -> int | None:
        """How many events sessions must hold; None where not all that changed them is known, or it may have removed some."""
        if self.forgotten or self.removing:
            return None
        told = self.adding == self.applied
        only_advances = self.corrections == self.advances and self.applied <= self.advances
        return self.accepted + self.restated - self.expired if told or only_advances else None

    def agrees_with(self, events: int) -> bool:
        """Say whether sessions that hold so many events can be right: exactly those that they must, where that is known."""
        return self.events in (None, events)
