"""What holds cleanups back: a share of the rows at most, and a batch's clock that is far ahead of the last commit (docs/rules.md, rule 183)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sessionlake.engine.operator import STATE, BatchContext
from sessionlake.errors import PipelineStateError
from sessionlake.warehouse.changelog import LIVE_ROWS

DAY_US = 86_400_000_000
"""A batch's clock that is further ahead of the last commit has jumped."""
FLOOR = 100
"""So many rows may go in a round whatever share of all they are."""
LEAST_COUNTED = 1000
"""So many rows a shard counts at least, also where it loses none, so that one with few rows is not taken for the whole table."""
GONE, LEFT = f"{STATE}gone_by_clock", f"{STATE}rows_left"
"""Numbers of a batch: rows that its cleanup takes away since time has passed; and, where the state does not know, rows that are left, or fewer."""
RULE, JUMP = "max_cleanup_rule", "max_clock_jump_us"
"""Numbers of a batch: by which rule its cleanup went, and the clock of the jump that it follows, 0 for none."""
CLEANED = {"wall": "cleaned_wall_us", "stream": "cleaned_stream_us"}
"""Of a state, by clock: that of the last cleanup."""
ROUND_OF, JUMPED = "cleanup_held", "clock_jumped_us"
"""Of a state: the round that cleanups are in; the clock of the batch that had jumped, for a day."""
_LIFT = "if it is and they are to go, start once with --allow-expiry; else set the clock, then start with --replan --trust-clock"


@dataclass(frozen=True)
class Round:
    """How far the cleanups have come that look at all rows once: one, or as many as it takes."""

    rule: int
    since_us: int | None = None
    """Up to this clock an earlier round took away whatever had expired; None where no round by this rule has ended."""
    cleanups: int = 0
    """How many there were since then."""
    own: int = 0
    """How many of them are of this round."""
    gone: int = 0
    """Rows that this round has taken away, of those that count."""

    @classmethod
    def of(cls, told: Mapping[str, Any] | None, rule: int, clock_us: int, state: Mapping[str, Any]) -> "Round":
        """Return the round that a state or a cursor tells of; a first one if that was by another rule or a clock still ahead.

        If nothing tells of a round, as in what an earlier version wrote, one has ended with the last cleanup of the state.
        """
        if told is None:
            cleaned = [int(state[name]) for name in CLEANED.values() if int(state.get(name, clock_us)) < clock_us]
            return cls(rule, max(cleaned, default=None))
        known = cls(**told)
        if known.rule != rule or (known.since_us is not None and known.since_us > clock_us):
            return cls(rule)
        return known

    def told(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    def with_cleanup(self, gone: int) -> "Round":
        """Return the round after one more of its cleanups."""
        return replace(self, cleanups=self.cleanups + 1, own=self.own + 1, gone=self.gone + gone)

    def ended(self, began_us: int) -> "Round":
        """Return the next round, after one whose first cleanup was at this clock."""
        return Round(self.rule, began_us, self.own - 1)


@dataclass(frozen=True)
class Brake:
    """How much of a table a round may take away."""

    max_share: float
    """1 where all may go, and nothing is counted: no round that has not ended is held against a later run."""
    rule: int
    """A hash of the rule: under another one nothing was looked at yet."""

    def expected_us(self, round_: Round, every_us: int) -> int | None:
        """Return the clock that a cleanup would have if they had lain `every_us` apart; None before a round has ended.

        What has expired by then is no news: rows that came in when they were old, and what a normal interval brings.
        """
        return None if round_.since_us is None else round_.since_us + (round_.cleanups + 2) * every_us

    def enough(self, gone: int) -> int:
        """Return how many rows a shard must have for `gone` of them to be within the share; it counts no more than so many."""
        return max(int(gone / self.max_share) + 1, LEAST_COUNTED)


def jumped_us(context: BatchContext) -> int | None:
    """Return the clock of the batch that had jumped, up to a day before this one; None for none.

    A table without rows has nothing to lose by a jump.
    """
    has_rows = context.state.get(LIVE_ROWS) != 0
    if has_rows and context.last_us is not None and context.clock_us - context.last_us > DAY_US:
        return context.clock_us
    known = context.state.get(JUMPED)
    return None if known is None or not known <= context.clock_us < known + DAY_US else int(known)


def next_round(
    state: Mapping[str, Any], stats: Mapping[str, int], clock_us: int | None, *, left_over: bool
) -> dict[str, Any]:
    """Return what of a state is about what holds cleanups back, after a batch with these numbers; `clock_us` is its cleanup's."""
    told = {ROUND_OF: state[ROUND_OF]} if ROUND_OF in state else {}
    if RULE in stats and clock_us is not None:
        now = Round.of(state.get(ROUND_OF), stats[RULE], clock_us, state).with_cleanup(stats.get(GONE, 0))
        told[ROUND_OF] = (now if left_over else Round(now.rule, clock_us)).told()
    jumped = stats.get(JUMP, state.get(JUMPED))
    return {**told, JUMPED: jumped} if jumped else told


def check_share(
    brake: Brake, state: Mapping[str, Any], stats: Mapping[str, int], clock_us: int, left: int, what: str
) -> None:
    """Raise PipelineStateError where a round has taken more than its share, with this batch; `left` rows are there after it."""
    gone = Round.of(state.get(ROUND_OF), brake.rule, clock_us, state).gone + stats.get(GONE, 0)
    share = gone / max(gone + left, 1)
    if gone > FLOOR and share > brake.max_share:
        raise PipelineStateError(
            f"ttl.max_share: the cleanup at {format_clock(clock_us)} would bring what has gone in its round to {gone:,} {what}, "
            f"{share:.0%} of those there are, more than {brake.max_share:.0%}; is that clock right? {_LIFT}"
        )


def check_hidden(max_share: float, before_us: int, after_us: int, last_put_us: int) -> None:
    """Raise PipelineStateError where a batch moves the time up to which rows are hidden by more than a day, and over more than a share.

    Nobody counts such rows: the share is of the time in which those that are shown were written, up to `last_put_us`.
    """
    shown = last_put_us - before_us
    share = (min(after_us, last_put_us) - before_us) / max(shown, 1)
    if after_us - before_us > DAY_US and shown > 0 and share > max_share:
        raise PipelineStateError(
            f"ttl.max_share: the batch would hide what was written up to {format_clock(after_us)}, {share:.0%} of the time since "
            f"{format_clock(before_us)}, more than {max_share:.0%}; is this machine's clock right? {_LIFT}"
        )


def notes_of(state: Mapping[str, Any], stats: Mapping[str, int]) -> list[str]:
    """Return what a user should know of a batch with these numbers, after a state: that its clock has jumped."""
    jumped = stats.get(JUMP)
    if not jumped or jumped == state.get(JUMPED):
        return []
    cleaned = any(name.startswith("max_cleaned_") for name in stats)
    does = "does remove what has expired, since an earlier jump held that back"
    if not cleaned:
        does = "removes nothing that has expired, the next cleanup does"
    text = (
        f"ttl: the clock, {format_clock(jumped)}, is more than a day ahead of the last commit; this batch {does}; "
        "see that the clock is right"
    )
    return [text]


def check_first_hidden(rows: int, hidden: int) -> None:
    """Raise PipelineStateError if rows begin to be hidden by the time at which they were written in a table that has many.

    Up to now their rows were deleted one by one, and nobody knows how many of them are hidden from now on.
    """
    if rows > FLOOR:
        raise PipelineStateError(
            f"ttl.max_share: from this batch on no row is there that was written up to {format_clock(hidden)}, which may be all of "
            f"the {rows:,}; if they are to go, start once with --allow-expiry"
        )


def format_clock(clock_us: int) -> str:
    """Return a clock for people."""
    return datetime.fromtimestamp(clock_us // 1_000_000, UTC).isoformat(" ")
