"""Streams of batches and windows by time as tests draw them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.oracle.windows import Event, WindowModel

FOREVER = 10**12
POLICIES = [("off", "end", "close"), ("off", "close", "close"), ("batch", "end", "batch"), ("batch", "end", 4)]
POLICIES += [("off", "end", 5), (3, "end", "batch"), (3, "end", 5), (3, "close", 5), (3, "end", "close")]


@dataclass(frozen=True)
class Batch:
    clock: int
    events: tuple[Event, ...]
    restate: bool


@st.composite
def models(draw: st.DrawFn) -> WindowModel:
    size = draw(st.integers(1, 12))
    grace = draw(st.integers(0, 20))
    early, full, late = draw(st.sampled_from(POLICIES))
    return WindowModel(
        kind=draw(st.sampled_from(["tumbling", "hopping", "sliding"])),
        size=size,
        advance=draw(st.integers(1, size)),
        offset=draw(st.integers(-3, 15)),
        grace=grace,
        retention=max(size, grace) + draw(st.integers(0, 20)),
        early=early,
        full=full,
        late=late,
        beyond_retention=draw(st.sampled_from(["dead_letter", "drop"])),
        exits=draw(st.booleans()),
        tick_offset=draw(st.integers(0, 3)),
        keep=draw(st.one_of(st.none(), st.integers(1, 12))),
    )


@st.composite
def streams(draw: st.DrawFn, *, restates: bool = False) -> list[Batch]:
    """Draw batches, empty ones among them, whose times go on by a few units each and reach back by up to 40."""
    clock, now, batches = 0, draw(st.integers(-20, 60)), []
    for _ in range(draw(st.integers(1, 12))):
        clock += draw(st.integers(0, 6))
        now += draw(st.integers(0, 8))
        back = st.one_of(st.integers(-3, 6), st.integers(0, 40))
        drawn = draw(st.lists(st.tuples(st.sampled_from("ab"), back, st.integers(1, 9)), max_size=4))
        events = tuple((key, now - reach, value) for key, reach, value in drawn)
        batches.append(Batch(clock, events, restates and draw(st.booleans())))
    return batches


SECOND = 1_000_000


def at(text: str) -> int:
    hours, minutes, seconds = (int(part) for part in text.split(":"))
    return (hours * 3600 + minutes * 60 + seconds) * SECOND
