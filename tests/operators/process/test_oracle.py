"""Every batch of a processor against a loop in plain Python, and streams in other batches, tasks, shards against one batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.operators.process import processors
from tests.operators.process.memory_segments import MemorySegments
from tests.operators.process.process_support import ProcessPipeline
from tests.oracle.process import Machine

COLUMNS = {"kind": pa.string(), "value": pa.int64()}
OUTPUT = {"text": "string", "number": "long", "other": "double", "flag": "boolean"}
TYPES = {"text": str, "number": int, "other": float, "flag": bool}
LARGEST = 2000
EVENT_TIME = ["Funnel", "Sessions", "FirstAfterPause", "RateLimiter", "Chained", "Raising"]

ROW = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["a", "b", "ü"]),
        "time_us": st.integers(0, 40),
        "kind": st.sampled_from("abc"),
        "value": st.integers(0, 9),
        "partition": st.sampled_from([0, 0, 0, 2]),
    }
)
BATCH = st.fixed_dictionaries(
    {
        "rows": st.lists(ROW, max_size=8),
        "clock": st.integers(0, 60),
        "tasks": st.integers(1, 3),
        "reset": st.lists(st.sampled_from(["a", "b", "nobody"]), max_size=1),
        "lose": st.booleans(),
    }
)


@contextmanager
def opened(of: str, shards: int, retention: int, grace: int) -> Iterator[ProcessPipeline]:
    lengths = {"retention_us": retention, "grace_us": grace}
    found = ProcessPipeline(
        Path(), of, COLUMNS, OUTPUT, **lengths, shards=shards, max_state_bytes=LARGEST, opened=MemorySegments
    )
    try:
        yield found
    finally:
        found.close()


def sent_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (r["output_key"], r["output_time"], r["position"], r["ordinal"], {name: r[name] for name in TYPES})
            for r in rows
        ),
        key=str,
    )


def shown(found: ProcessPipeline) -> dict[str, Any]:
    """Return the states by key: entries, timers, and what names the next row."""
    return {
        key: (
            {(e["store"], e["name"]): e["value"] for e in row["entries"]},
            {t["name"]: (t["at"], t["clock"]) for t in row["timers"]},
            (row["position"], row["ordinal"], row["touched_at"]),
        )
        for key, row in found.states.items()
    }


def expected(machine: Machine) -> dict[str, Any]:
    return {
        key: (
            {(s, n): t.replace(" ", "") for s, store in m.stores.items() for n, t in dict.items(store)},
            m.timers,
            (m.position, m.ordinal, m.touched),
        )
        for key, m in machine.memory.items()
    }


@settings(max_examples=200, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])
@given(
    of=st.sampled_from([*EVENT_TIME, "Clocked"]),
    batches=st.lists(BATCH, max_size=6),
    shards=st.sampled_from([1, 3]),
    retention=st.sampled_from([9, 20, 100]),
    grace=st.sampled_from([0, 3]),
)
def test_batches_are_as_the_oracle_says(
    of: str, batches: list[dict[str, Any]], shards: int, retention: int, grace: int
) -> None:
    machine = Machine(getattr(processors, of), TYPES, retention, grace, LARGEST)
    with opened(of, shards, retention, grace) as found:
        for batch in batches:
            before = len(machine.sent)
            machine.batch(batch["rows"], batch["clock"], tuple(batch["reset"]))
            resets = [{"kind": "reset", "key": key} for key in batch["reset"]]
            sent = found.batch(batch["rows"], clock_us=batch["clock"], tasks=batch["tasks"], corrections=resets)
            assert sent_of(sent) == sorted(machine.sent[before:], key=str)
            assert shown(found) == expected(machine)
            assert sorted((d["key"], d["event_time"]) for d in found.dead) == sorted(machine.dead)
            failed = [(d["key"], d["event_time"]) for d in found.failed_timers]
            assert sorted(failed) == sorted(one[:2] for one in machine.failed)
            assert sorted(found.stored()) == sorted(machine.memory)
            index, stored = found.index(), found.stored()
            if batch["lose"]:
                found.lose_stores()
            assert (found.index(), found.stored()) == (index, stored)
            clocks = [at for m in machine.memory.values() for at, by in m.timers.values() if by]
            assert found.state["next_clock_timer_us"] == min(clocks, default=None)
            numbers = found.stats
            assert numbers.get("input", 0) == numbers.get("accepted", 0) + numbers.get("dead", 0)


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, list[dict[str, Any]], list[int]]:
    """Draw a grace, rows that come at most that late, and places at which the stream is cut."""
    grace = draw(st.sampled_from([0, 4]))
    newest, rows = 0, []
    for row in draw(st.lists(ROW, max_size=30)):
        newest = newest + draw(st.integers(0, 6))
        rows.append({**row, "partition": 0, "time_us": newest - draw(st.integers(0, grace))})
        newest = max(newest, rows[-1]["time_us"])
    # The watermark is that of rows: none may come later than the grace behind the greatest time before it.
    seen, kept = 0, []
    for row in rows:
        time = max(row["time_us"], seen - grace)
        kept.append({**row, "time_us": time})
        seen = max(seen, time)
    return grace, kept, draw(st.lists(st.integers(0, len(kept)), max_size=5).map(sorted))


@settings(max_examples=200, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])
@given(of=st.sampled_from(EVENT_TIME), stream=streams(), shards=st.sampled_from([1, 2]), tasks=st.integers(1, 3))
def test_a_stream_cut_anywhere_gives_the_same(
    of: str, stream: tuple[int, list[dict[str, Any]], list[int]], shards: int, tasks: int
) -> None:
    grace, rows, cuts = stream
    retention = 12
    machine = Machine(getattr(processors, of), TYPES, retention, grace, LARGEST)
    machine.batch(rows)
    with opened(of, shards, retention, grace) as found:
        for first, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            found.batch(rows[first:end], tasks=tasks)
        assert sent_of(found.sent) == sorted(machine.sent, key=str)
        assert shown(found) == expected(machine)
