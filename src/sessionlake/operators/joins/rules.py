"""The progress of a join after a batch: a watermark of each side, and the bounds of late and of dropped messages (docs/rules.md, rules 122 to 125, and 295)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sessionlake.operators.joins.axis import axis_of
from sessionlake.operators.joins.spec import JoinSpec
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.operators.shared.windowing.emission import (
    MAX_BATCH,
    MAX_CLOCK,
    UNSENT_EARLY,
    Progress,
    Ticks,
    after_batch,
    next_progress,
    ticks_of,
)
from sessionlake.operators.shared.windowing.policies import OFF
from sessionlake.stream.control import MAX_ADVANCE
from sessionlake.stream.positions import POSITIONS, counted
from sessionlake.stream.watermark import BY_INPUT, MAX_TIME, NO_WATERMARK, max_time_of

HORIZONS = "horizons"
"""In the state: by side the place before whose strict past messages are absent; None before the first."""
NEVER = 1 << 62
"""A batch that never comes."""
_SEEN, _HELD = "seen_us", "held"


@dataclass(frozen=True)
class JoinProgress:
    """How far a join has come after a batch; kept in the state of its commit. None of the places goes back."""

    at: Progress
    """The watermark and its bounds, the ticks, and the unsent messages. A join by count has no watermark."""
    watermarks_us: Mapping[str, int] = field(default_factory=dict)
    """The greatest time of each side's accepted messages."""
    seen_us: Mapping[str, int] = field(default_factory=dict)
    """The clock of the last batch in which each side brought a message; at first that of the first batch."""
    horizons: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By policy and side the horizon of the last batch after which no message of the policy waited."""
    positions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By side and source partition how many messages have a position."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "JoinProgress":
        """Return the progress in a commit's state; before the first batch, that of an empty state."""
        return cls(
            Progress.of(state),
            _known(state.get(BY_INPUT, {})),
            state.get(_SEEN, {}),
            _known(state.get(HORIZONS, {})),
            {policy: _known(each) for policy, each in state.get(_HELD, {}).items()},
            state.get(POSITIONS, {}),
        )

    def state(self) -> dict[str, Any]:
        """Return the JSON values for the state."""
        return {
            **self.at.state(),
            BY_INPUT: _shown(self.watermarks_us),
            _SEEN: dict(self.seen_us),
            HORIZONS: _shown(self.horizons),
            _HELD: {policy: _shown(each) for policy, each in self.held.items()},
            POSITIONS: self.positions,
        }

    def horizon(self, side: str) -> int:
        """Return the place before whose strict past messages of a side are absent."""
        return self.horizons.get(side, NO_WATERMARK)

    def restored_from(self, spec: JoinSpec, side: str) -> int:
        """Return the place from which on messages of a side are read to restore stores: of an outer join, those that may have been partners, too."""
        return self.horizon(side) - (axis_of(spec).reach if spec.outer else 0)

    def newest(self, spec: JoinSpec) -> int:
        """Return the place after which no message of either side lies. Late messages that were added again lie before W."""
        counts = (count for of_side in self.positions.values() for count in of_side.values())
        return max((self.watermarks_us.values() if spec.by_time else counts), default=NO_WATERMARK)

    def waiting_since(self, policy: int) -> int:
        """Return the batch strictly after which messages of a policy, 0 early and 1 late, wait to be due."""
        at = self.at
        unsent, since = ((at.unsent_early, at.early_batch), (at.unsent_late, at.late_batch))[policy]
        return since if unsent else NEVER

    @property
    def full_us(self) -> int | None:
        """Up to which end windows are full, if pairs waited for that in the last batch; None if they did not."""
        return self.at.full_us if self.at.emit[:1] == (OFF,) else None


@dataclass(frozen=True)
class _Sides:
    """How far both sides are after a batch."""

    reached: Mapping[str, int]
    seen: Mapping[str, int]
    frontier: int
    """The least of the greatest times of the sides that are not idle."""


def _sides(spec: JoinSpec, before: JoinProgress, stats: Mapping[str, int], clock: int | None) -> _Sides:
    asked = stats.get(MAX_ADVANCE, NO_WATERMARK)
    reached = {
        side: max(before.watermarks_us.get(side, NO_WATERMARK), stats.get(max_time_of(side), NO_WATERMARK), asked)
        for side in SIDES
    }
    seen = {}
    for side in SIDES:
        known = clock if max_time_of(side) in stats else before.seen_us.get(side, clock)
        if known is not None:
            seen[side] = known
    active = [reached[side] for side in SIDES if clock is None or clock - seen[side] <= spec.idle_us]
    # Both sides have come as far as is asked for, idle or not.
    frontier = max(min(active, default=NO_WATERMARK), asked)
    return _Sides(reached, seen, frontier if spec.by_time else NO_WATERMARK)


def bounds_after(spec: JoinSpec, before: JoinProgress, stats: Mapping[str, int], clock_us: int) -> Progress:
    """Return the bounds of late messages and of full windows after a batch with these numbers of map tasks, as the next batch has them."""
    frontier = _sides(spec, before, stats, clock_us).frontier
    return after_batch(spec.emit, spec.grace_us, spec.retention_us, before.at, frontier, clock_us)


def ticks_in(spec: JoinSpec, before: JoinProgress, clock_us: int, *, flush: bool) -> Ticks:
    """Say which policies fire; all that waits is due in the batch from which on pairs wait until their window is full."""
    ticks = ticks_of(spec.emit, before.at, clock_us, flush=flush)
    return replace(ticks, early=ticks.early or _begins_to_hold(spec, before))


def _begins_to_hold(spec: JoinSpec, before: JoinProgress) -> bool:
    return spec.until_full and before.full_us is None and bool(before.at.emit)


def next_state(spec: JoinSpec, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
    """Return the state after a batch with these numbers."""
    before = JoinProgress.of(state)
    positions = counted(state, stats)[POSITIONS]
    sides = _sides(spec, before, stats, stats.get(MAX_CLOCK, before.at.clock_us))
    plain = {name: value for name, value in stats.items() if name not in (MAX_TIME, MAX_ADVANCE)}
    at = next_progress(
        spec.emit, spec.grace_us, spec.retention_us, before.at, {**plain, MAX_TIME: sides.frontier}, spec.keeping
    )
    if MAX_CLOCK in stats and _begins_to_hold(spec, before):
        at = replace(at, early_batch=stats[MAX_BATCH], unsent_early=stats.get(UNSENT_EARLY, 0))
    least = {side: _least_kept(spec, at, positions.get(side, {})) for side in SIDES}
    # A window that is not full lies within the retention, which is as long as windows and grace: nothing is held for its pairs.
    held = {
        policy: before.held.get(policy, {}) if waiting else least
        for policy, waiting in (("early", at.unsent_early and not spec.until_full), ("late", at.unsent_late))
    }
    horizons = {
        side: max(before.horizon(side), min(each.get(side, NO_WATERMARK) for each in held.values())) for side in SIDES
    }
    return JoinProgress(at, sides.reached, sides.seen, horizons, held, positions).state()


def _least_kept(spec: JoinSpec, at: Progress, accepted: Mapping[str, int]) -> int:
    """Return the place of the oldest message that the retention keeps; by count of the partition that has come least far."""
    if spec.by_time:
        return at.expired_us
    return min(accepted.values(), default=NO_WATERMARK) - spec.retention_count + 1


def _known(places: Mapping[str, int | None]) -> dict[str, int]:
    return {name: NO_WATERMARK if place is None else place for name, place in places.items()}


def _shown(places: Mapping[str, int]) -> dict[str, int | None]:
    """Return places as JSON values; the place before all others is null."""
    return {name: None if place <= NO_WATERMARK // 2 else place for name, place in places.items()}
