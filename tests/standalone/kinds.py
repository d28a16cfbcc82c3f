"""One of each kind of aggregator and of join, beside the harness of the same kind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from sessionlake import (
    CountSessions,
    CountWindows,
    HoppingWindows,
    SessionWindows,
    SlidingCountWindows,
    SlidingWindows,
    TumblingWindows,
)
from sessionlake.standalone import Emit, JoinWindow, WindowedAggregator
from sessionlake.testing import EmitSection, JoinHarness, SessionizerHarness, WindowHarness
from tests.standalone.support import Row

AGGREGATES = {"total": "sum(v)", "last": "last(v)", "middle": "median(v)"}
SCHEMA = {"v": "long"}
PERIODS = {"early": "7 us", "late": "5 us"}
EACH = {"early": "batch", "late": "batch"}
WINDOWS: dict[str, tuple[Any, dict[str, str]]] = {
    "tumbling": (TumblingWindows.of("10 us").grace("15 us").until("40 us"), PERIODS),
    "tumbling, each": (TumblingWindows.of("10 us").offset("3 us").until("40 us"), EACH),
    "hopping": (HoppingWindows.of("12 us", "4 us").grace("9 us").until("40 us"), PERIODS),
    "hopping, closed": (
        HoppingWindows.of("12 us", "8 us").grace("9 us").until("40 us"),
        {"full": "close", "late": "close"},
    ),
    "sliding": (SlidingWindows.of("10 us").grace("15 us").until("40 us"), PERIODS),
    "sliding, each": (SlidingWindows.of("10 us", exits=False).until("40 us"), EACH),
    "count": (CountWindows.of(3).until("40 us"), {"early": "7 us"}),
    "count, hopping": (CountWindows.of(4).advance(3).offset(1).until("40 us"), {"early": "batch"}),
    "count, partition": (CountWindows.of(4).advance(2).per("partition").until("40 us"), {"early": "7 us"}),
    "count, sliding": (SlidingCountWindows.of(3).until("40 us"), {}),
    "count, sessions": (CountSessions.of(2).until("40 us"), {"early": "7 us"}),
}
SESSIONS = SessionWindows.with_gap("5 us").grace("5 us").until("40 us")
JOINS: dict[str, dict[str, Any]] = {
    "sliding": {"by": "time", "grace": "5 us", "retention": "40 us"},
    "count": {"by": "count", "retention_count": 20},
    "hopping": {"kind": "hopping", "size": "8 us", "advance": "6 us", "grace": "5 us", "retention": "40 us"},
    "tumbling": {"kind": "tumbling", "size": "8 us", "grace": "5 us", "retention": "40 us"},
    "session": {"kind": "session", "gap": "3 us", "grace": "5 us", "retention": "40 us"},
}
SIZES: dict[str, tuple[Any, Any]] = {"sliding": ("6 us", "3 us"), "count": (4, 3)}
POLICIES = {"sliding": PERIODS, "count": {"early": "7 us", "late": "7 us"}, "hopping": EACH, "session": PERIODS} | {
    "tumbling": {"early": "off", "full": "end", "late": "5 us"}
}

messages = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["a", "b", "ab", None]),
        "time_us": st.integers(0, 90),
        "v": st.integers(-3, 3) | st.none(),
        "partition": st.sampled_from([0, 0, 0, 2]),
    }
)
"""Messages of any order; one of four has no key, and is refused."""


def aggregator(kind: str, directory: Path, **options: Any) -> WindowedAggregator:
    windows, emit = (SESSIONS, None) if kind == "sessions" else WINDOWS[kind]
    policies = None if emit is None else Emit(**emit)
    given = {"key": "key", "schema": {**SCHEMA, "key": "string"}, "emit": policies, **options}
    return WindowedAggregator(directory, windows, AGGREGATES, **given)


def window_harness(kind: str) -> Any:
    if kind == "sessions":
        return SessionizerHarness(SESSIONS, AGGREGATES, schema=SCHEMA)
    windows, emit = WINDOWS[kind]
    return WindowHarness(windows, AGGREGATES, emit=EmitSection(**emit), schema=SCHEMA)


def _sides(kind: str) -> dict[str, Any]:
    sizes = SIZES.get(kind, (None, None))
    return {
        side: {"name": side[0], "size": size, "columns": ["v"]}
        for side, size in zip(("left", "right"), sizes, strict=True)
    }


def join(kind: str, directory: Path, **options: Any) -> JoinWindow:
    schema = {**SCHEMA, "key": "string"}
    emit = Emit(**POLICIES[kind])
    return JoinWindow(directory, on=["key"], **_sides(kind), **JOINS[kind], schema=schema, emit=emit, **options)


def join_harness(kind: str) -> JoinHarness:
    schema = {**SCHEMA, "key": "string"}
    return JoinHarness(on=["key"], **_sides(kind), **JOINS[kind], schema=schema, **POLICIES[kind])


def changes_of(kind: str, harness: Any) -> Callable[[list[Row], int], list[Row]]:
    """Return what processes a batch of a harness at a time of the clock, none for a tick, and says which rows it gave."""
    if kind == "sessions":
        names = {"session_key": "key", "session_start": "start_us", "session_end": "end_us"}

        def process(rows: list[Row], clock: int) -> list[Row]:
            del clock
            plain = [{name: value for name, value in row.items() if name != "partition"} for row in rows]
            return [
                {**{n: row[o] for n, o in names.items()}, **{n: v for n, v in row.items() if n not in names.values()}}
                for row in harness.process(plain).changes
            ]

        return process
    return lambda rows, clock: (harness.process(rows, clock) if rows else harness.tick(clock)).changes
