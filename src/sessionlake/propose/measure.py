"""Measures of a sample: the distances between a key's events, their lateness, and the effect of a gap and a grace."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Groups, Ints, distinct
from sessionlake.columnar.groups import group_intervals
from sessionlake.config.durations import parse_duration
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.propose.sample import Sample
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.contract import check
from sessionlake.stream.watermark import NO_WATERMARK

GAPS = ("1 minute", "5 minutes", "10 minutes", "30 minutes", "1 hour", "2 hours", "4 hours", "8 hours", "12 hours")
GRACES = ("0 seconds", "1 minute", "10 minutes", "1 hour", "6 hours", "1 day", "7 days", "30 days")
USUAL_GAP, USUAL_GRACE = "30 minutes", "1 day"
FEW = 20
"""With fewer distances between a key's events the gap is the usual one."""
LATE_ENOUGH = 0.001
"""The least grace that leaves at most this share late is proposed; a sample in perfect order does not promise none at all."""
MOST_AHEAD = "1 hour"
"""Events further ahead of the clock are not measured: the proposed config refuses them."""
Batch = tuple[Ints, Ints]
"""Codes of the keys and times in microseconds of a batch's events."""


@dataclass(frozen=True)
class Seen:
    """Facts about the events, for any operator."""

    events: int
    refused: int
    """Rows without a key or a time that can be read."""
    ahead: int
    """Events more than MOST_AHEAD ahead of the clock. They are in none of the other numbers."""
    keys: int
    first_us: int
    last_us: int
    backward: float
    """Share of events in a later batch than an event of a newer time."""


@dataclass(frozen=True)
class Lateness:
    """The effect of a grace on late events, given the order in which events come."""

    late: dict[str, float]
    """Share of events late or beyond retention under each grace of GRACES."""
    grace: str
    retention: str


@dataclass(frozen=True)
class Measured:
    """The measures for sessions."""

    seen: Seen
    sessions: dict[str, int]
    """Number of sessions under each gap of GAPS."""
    gap: str
    lateness: Lateness


def measure(sample: Sample, columns: EventColumns) -> Measured:
    """Measure the sample's events, and how sessions would lie in them."""
    batches, seen = look(sample, columns)
    if not seen.events:
        return Measured(seen, {}, USUAL_GAP, Lateness({}, USUAL_GRACE, "30 days"))
    codes, times = (np.concatenate([batch[side] for batch in batches]) for side in (0, 1))
    distances = _distances(codes, times)
    gap = propose_gap(distances)
    sessions = {text: seen.keys + int((distances > parse_duration(text)).sum()) for text in GAPS}
    return Measured(seen, sessions, gap, lateness(gap, partial(late_share, batches, gap)))


def look(sample: Sample, columns: EventColumns) -> tuple[list[Batch], Seen]:
    """Return the good events of each batch, and the facts about all of them."""
    read, refused = _batches(sample, columns)
    # A stream refuses events from the future, so they move no watermark. Otherwise one client with a wrong clock
    # would make all other events late.
    batches = _until(read, time.time_ns() // 1000 + parse_duration(MOST_AHEAD))
    codes, times = (np.concatenate([batch[side] for batch in batches]) for side in (0, 1))
    ahead = sum(len(times) for _, times in read) - len(times)
    if not len(times):
        return batches, Seen(0, refused, ahead, 0, 0, 0, 0.0)
    bounds = int(times.min()), int(times.max())
    return batches, Seen(len(times), refused, ahead, len(distinct(codes)), *bounds, _behind(batches) / len(times))


def lateness(length: str, share: Callable[[str, str], float]) -> Lateness:
    """Return the shortest grace that leaves few events late; `share` returns their share, given a grace and a retention.

    `length` is the time by which the retention must exceed the grace for a session or window.
    """
    retention = {grace: retention_for(length, grace) for grace in GRACES}
    late = {grace: share(grace, retention[grace]) for grace in GRACES}
    grace = next((grace for grace in GRACES[1:] if late[grace] <= LATE_ENOUGH), USUAL_GRACE)
    return Lateness(late, grace, retention[grace])


def propose_gap(distances: Ints) -> str:
    """Return the gap at which the fewest distances lie: a longer one, up to the next of GAPS, would join hardly any more events.

    Counted per doubling of the length, and only if at least half of all distances are within the gap.
    """
    bounds = [parse_duration(text) for text in (*GAPS, "1 day")]
    if len(distances) < FEW:
        return USUAL_GAP
    within = np.array([(distances <= bound).mean() for bound in bounds])
    density = np.diff(within) / np.diff(np.log2(bounds))
    possible = np.flatnonzero(within[:-1] >= 0.5)
    return GAPS[possible[np.argmin(density[possible])]] if len(possible) else USUAL_GAP


def late_share(batches: Sequence[Batch], gap: str, grace: str, retention: str) -> float:
    """Return the share of events that a stream of these batches would not accept: they are late, or beyond retention.

    The rule is that of sessions: the watermark is the newest accepted time before the batch. An event is late if its
    session, after merging, ends more than gap + grace before the watermark.
    """
    windows = SessionWindows.with_gap(gap).grace(grace).until(retention)
    newest, refused, total = NO_WATERMARK, 0, sum(len(times) for _, times in batches)
    stored = (np.zeros(0, np.int64),) * 3
    keys = max((int(codes.max()) + 1 for codes, _ in batches if len(codes)), default=0)
    for codes, times in batches:
        bounds = windows.bounds(newest)
        accepted = times >= bounds.expired_us
        here = np.zeros(keys, bool)
        here[codes] = True
        near = here[stored[0]]
        taken, codes_, times_ = [part[near] for part in stored], codes[accepted], times[accepted]
        sessions, late = _merge((codes_, times_, times_), taken, windows.gap_us, bounds.close_us)
        refused += len(times) - len(times_) + late
        newest = max(newest, int(times_.max(initial=NO_WATERMARK)))
        horizon = windows.bounds(newest).oldest_end_us
        joined = [np.concatenate([old[~near], new]) for old, new in zip(stored, sessions, strict=True)]
        warm = joined[2] >= horizon
        stored = (
            (joined[0], joined[1], joined[2]) if warm.all() else (joined[0][warm], joined[1][warm], joined[2][warm])
        )
    return refused / total if total else 0.0


def _merge(new: Sequence[Ints], old: Sequence[Ints], gap_us: int, close_us: int) -> tuple[list[Ints], int]:
    """Return sessions (codes, starts, ends) of events and stored sessions, and the number of late events."""
    codes, start, end = (np.concatenate(sides) for sides in zip(new, old, strict=True))
    if not len(codes):
        return [codes, start, end], 0
    order, starts = group_intervals(codes, start, end, gap_us)
    groups = Groups(starts, len(order))
    # A session ends with its latest end, which its last interval need not have.
    ends = np.maximum.reduceat(end[order], starts)
    is_new = order < len(new[0])
    late = ends < close_us
    # A late session takes no events: its stored row stays as it is.
    kept = order[late[groups.ids] & ~is_new]
    merged = [codes[order[starts]][~late], start[order[starts]][~late], ends[~late]]
    sessions = [np.concatenate([side, whole[kept]]) for side, whole in zip(merged, (codes, start, end), strict=True)]
    return sessions, int((is_new & late[groups.ids]).sum())


def _batches(sample: Sample, columns: EventColumns) -> tuple[list[Batch], int]:
    """Return the batches' good events, keys as codes, and the number of refused rows."""
    keys: list[pa.Array] = []
    times: list[Ints] = []
    refused = 0
    for table in sample.batches:
        checked = check(table, None, columns)
        good = np.ones(table.num_rows, bool)
        if checked.reason is not None:
            good = pc.is_null(checked.reason).to_numpy(zero_copy_only=False)
        refused += int((~good).sum())
        keys.append(checked.key.filter(pa.array(good)))
        times.append(checked.time_us[good])
    encoded = pa.chunked_array(keys, pa.string()).dictionary_encode().combine_chunks()
    codes = encoded.indices.to_numpy().astype(np.int64)
    # Batches lie one after the other: cut each off at its end.
    bounds = np.cumsum([len(part) for part in times])[:-1]
    return list(zip(np.split(codes, bounds), times, strict=True)), refused


def _until(batches: Sequence[Batch], latest_us: int) -> list[Batch]:
    """Return the batches with the events of no later time."""
    return [(codes[times <= latest_us], times[times <= latest_us]) for codes, times in batches]


def _distances(codes: Ints, times: Ints) -> Ints:
    order = np.lexsort((times, codes))
    same = np.diff(codes[order]) == 0
    distances: Ints = np.diff(times[order])[same]
    return distances


def _behind(batches: Sequence[Batch]) -> int:
    newest, behind = NO_WATERMARK, 0
    for _, times in batches:
        behind += int((times < newest).sum())
        newest = max(newest, int(times.max(initial=NO_WATERMARK)))
    return behind


def retention_for(gap: str, grace: str) -> str:
    """Return 30 days, or as many as gap and grace need."""
    days = -(-(parse_duration(gap) + parse_duration(grace)) // parse_duration("1 day"))
    return f"{max(30, days)} days"
