"""Whether sessions hold the events that were accepted: one rule for `status`, `quality` and whatever engine they read with."""

from dataclasses import dataclass

SESSIONS_SQL = "select coalesce(sum(event_count), 0) from sessions_live"
"""The events that sessions hold, all sessions, also those that `emit = "final"` does not show yet."""
CORRECTIONS_SQL = "select count(*), coalesce(sum(case when kind = 'advance' then 1 else 0 end), 0) from corrections"
"""How many corrections there are, and how many of them only move the watermark."""


@dataclass(frozen=True)
class Accepted:
    """What the committed batches and the control input say of the events in sessions."""

    accepted: int
    applied: int
    """Corrections that took effect, a topic's tombstones among them."""
    corrections: int
    """Rows of the control input, whether read yet or not."""
    advances: int
    """Those of them that only move the watermark."""
    forgotten: bool
    """Whether keys were ever erased."""

    @property
    def corrected(self) -> bool:
        """Whether sessions may have been removed, or events added, by others than the stream's input.

        In numbers only, not one by one, is it known what took effect; of a topic's tombstones no table need tell.
        """
        return self.corrections > self.advances or self.applied > self.advances or self.forgotten

    def agrees_with(self, events: int) -> bool:
        """Say whether sessions that hold so many events can be right: exactly those accepted, where nothing was corrected."""
        return self.corrected or events == self.accepted
