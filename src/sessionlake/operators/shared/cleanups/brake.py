"""The brake of cleanups: a largest share of rows, and a limit to the jump of a batch's clock since the last commit (docs/rules.md, rule 183)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sessionlake.engine.operator import BatchContext, StateStat
from sessionlake.errors import PipelineStateError
from sessionlake.operators.shared.cleanups.names import LIVE_ROWS

DAY_US = 86_400_000_000
"""A batch's clock that is further ahead of the last commit than this has jumped."""
FLOOR = 100
"""This number of rows may go in a round, also if it is a large share of all."""
LEAST_COUNTED = 1000
"""The least number that a shard counts up to, also if it loses no row: a shard with few rows must not pass for the whole table."""
GONE, LEFT = StateStat("state_gone_by_clock"), StateStat("state_rows_left")
"""Numbers of a batch: rows that its cleanup removes because their time is over; and, if the state does not have it, the rows left, or fewer."""
RULE, JUMP = StateStat("max_cleanup_rule", greatest=True), StateStat("max_clock_jump_us", greatest=True)
"""Numbers of a batch: the hash of its cleanup's rule, and the clock of the jump before it, 0 for none."""
CLEANED = {"wall": "cleaned_wall_us", "stream": "cleaned_stream_us"}
"""Fields of a state: the clock of the last cleanup, by kind of clock."""
MAX_CLEANED = {clock: StateStat(f"max_{name}", greatest=True) for clock, name in CLEANED.items()}
"""Numbers of a batch: the clock of its cleanup, by kind of clock."""
ROUND_OF, JUMPED = "cleanup_held", "clock_jumped_us"
"""Fields of a state: the round that cleanups are in; and for a day the clock of the batch that had jumped."""
_LIFT = "if it is and they are to go, start once with --allow-expiry; else set the clock, then start with --replan --trust-clock"


@dataclass(frozen=True)
class Round:
    """A round: the cleanups, one or several, that together look at all rows once."""

    rule: int
    since_us: int | None = None
    """An earlier round removed all rows that had expired by this clock; None if no round by this rule has ended."""
    cleanups: int = 0
    """How many cleanups there were since then."""
    own: int = 0
    """How many of those cleanups belong to this round."""
    gone: int = 0
    """The counted rows that this round has removed."""

    @classmethod
    def of(cls, told: Mapping[str, Any] | None, rule: int, clock_us: int, state: Mapping[str, Any]) -> "Round":
        """Return the round in a state or a cursor; a first one if the old round had another rule, or a clock that is still ahead.

        A state without a round, as an earlier version wrote it, means that a round ended with its last cleanup.
        """
        if told is None:
            cleaned = [int(state[name]) for name in CLEANED.values() if int(state.get(name, clock_us)) < clock_us]
            return cls(rule, max(cleaned, default=None))
        known = cls(**told)
        if known.rule != rule or (known.since_us is not None and known.since_us > clock_us):
            return cls(rule)
        return known

    def to_json(self) -> dict[str, Any]:
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
    """How large a share of a table a round may remove."""

    max_share: float
    """1 if all rows may go; then nothing is counted, and an unfinished round has no effect on a later run."""
    rule: int
    """A hash of the rule: a new rule begins a first round."""

    def expected_us(self, round_: Round, every_us: int) -> int | None:
        """Return the clock that a cleanup would have if they had lain `every_us` apart; None before a round has ended.

        Rows that have expired by then are not surprising: they were old when they came, or a normal interval brings them.
        """
        return None if round_.since_us is None else round_.since_us + (round_.cleanups + 2) * every_us

    def enough(self, gone: int) -> int:
        """Return how many rows a shard must have for `gone` of them to be within the share; it counts no further."""
        return max(int(gone / self.max_share) + 1, LEAST_COUNTED)


def jumped_us(context: BatchContext) -> int | None:
    """Return the batch's clock if it is more than a day ahead of the last commit, else the last such jump within a day.

    None if there is neither.

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
    """Return the brake's part of the state after a batch with these numbers; `clock_us` is the clock of its cleanup."""
    told = {ROUND_OF: state[ROUND_OF]} if ROUND_OF in state else {}
    if RULE in stats and clock_us is not None:
        now = Round.of(state.get(ROUND_OF), stats[RULE], clock_us, state).with_cleanup(stats.get(GONE, 0))
        told[ROUND_OF] = (now if left_over else Round(now.rule, clock_us)).to_json()
    jumped = stats.get(JUMP, state.get(JUMPED))
    return {**told, JUMPED: jumped} if jumped else told


def check_share(
    brake: Brake, state: Mapping[str, Any], stats: Mapping[str, int], clock_us: int, left: int, what: str
) -> None:
    """Raise PipelineStateError if a round, with this batch, has removed more than its share; `left` rows are there after it.

    For example, with `max_share = 0.2` a round that removes 300 of 1,000 rows is refused.
    """
    gone = Round.of(state.get(ROUND_OF), brake.rule, clock_us, state).gone + stats.get(GONE, 0)
    share = gone / max(gone + left, 1)
    if gone > FLOOR and share > brake.max_share:
        raise PipelineStateError(
            f"ttl.max_share: the cleanup at {format_clock(clock_us)} would raise the number removed in its round to {gone:,} {what}, "
            f"{share:.0%} of all, more than {brake.max_share:.0%}; is that clock right? {_LIFT}"
        )


def check_hidden(max_share: float, before_us: int, after_us: int, last_put_us: int) -> None:
    """Raise PipelineStateError if a batch moves the time up to which rows are hidden by more than a day, and over more than a share.

    Hidden rows are not counted. The share is one of time: of the span in which the shown rows were written, up to `last_put_us`.
    """
    shown = last_put_us - before_us
    share = (min(after_us, last_put_us) - before_us) / max(shown, 1)
    if after_us - before_us > DAY_US and shown > 0 and share > max_share:
        raise PipelineStateError(
            f"ttl.max_share: the batch would hide the rows written up to {format_clock(after_us)}, {share:.0%} of the time since "
            f"{format_clock(before_us)}, more than {max_share:.0%}; is this machine's clock right? {_LIFT}"
        )


def notes_of(state: Mapping[str, Any], stats: Mapping[str, int]) -> list[str]:
    """Return the notes for the user on a batch with these numbers, after a state: that its clock has jumped."""
    jumped = stats.get(JUMP)
    if not jumped or jumped == state.get(JUMPED):
        return []
    cleaned = any(name in stats for name in MAX_CLEANED.values())
    does = "removes expired rows, which an earlier jump held back"
    if not cleaned:
        does = "removes no expired rows, the next cleanup does"
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
