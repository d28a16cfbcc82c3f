"""What must not matter: the order inside a batch, the batch boundaries, the number of shards, the origin of time."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from hypothesis import strategies as st

from tests.operators.sessions.strategies import (
    ALL,
    BASIC,
    Config,
    Draft,
    Row,
    batches,
    ci,
    configs,
    events,
    in_each,
    names_of,
    resolved_stream,
    rows,
    run,
    slow,
    with_shards,
)

VALUED = st.sampled_from([0.0, 1.0, 2.0, 3.0])


def check_order_inside_a_batch(config: Config, drafted: list[list[Draft]], seed: int) -> None:
    """Corrections that name one session twice are left out: among them the order does decide."""
    stream = resolved_stream(config, drafted)
    shuffled = [random.Random(seed).sample(rows_of_batch, len(rows_of_batch)) for rows_of_batch in stream]
    assert run(config, stream) == run(config, shuffled)


def check_shards(config: Config, drafted: list[list[Draft]]) -> None:
    stream = resolved_stream(config, drafted, allow_conflicts=True)
    assert run(with_shards(config, 1), stream) == run(with_shards(config, 3), stream)


def check_origin_of_time(config: Config, drafted: list[list[Draft]], shift: int) -> None:
    """Times before 1970 and segment boundaries are like any others."""
    # Cells lie where they lie.
    lengths = [config.max_length, *(length for _, _, length, _ in config.before)]
    shift -= shift % math.lcm(*(length for length in lengths if length is not None))
    stream = resolved_stream(config, drafted)
    outcomes, final = run(config, stream)
    later = replace(config, before=tuple((end + shift, *limits) for end, *limits in config.before))
    moved_outcomes, moved_final = run(later, [[moved(row, shift) for row in batch] for batch in stream])
    assert [out["counts"] for out in outcomes] == [out["counts"] for out in moved_outcomes]
    assert [(key, start + shift, end + shift, *rest) for key, start, end, *rest in final] == moved_final


def moved(row: Row, shift: int) -> Row:
    out = {name: value + shift if name in ("time_us", "start_us", "end_us") else value for name, value in row.items()}
    if "remove" in row:
        out["remove"] = [(start + shift, revision) for start, revision in names_of(row)]
        out["put"] = [moved(partial, shift) for partial in row["put"]]
    return out


@st.composite
def covered_streams(draw: st.DrawFn, limits: str = "constant") -> tuple[Config, list[Row]]:
    """Draw events in arrival order, none further behind the largest time before it than grace + gap; than grace, with limits."""
    config = draw(configs(aggregates=ALL, limits=limits))
    allowed = config.grace + (config.gap if limits == "constant" else 0)
    newest = config.base
    stream: list[Row] = []
    for number in range(draw(st.integers(1, 14))):
        step = draw(st.sampled_from([0, config.gap, config.gap + 1, config.unit, 7 * config.unit]))
        behind = draw(st.sampled_from([0, 0, allowed, allowed - 1, config.gap, config.unit]))
        time = newest - min(behind, allowed) if behind else newest + step
        newest = max(newest, time)
        value = draw(VALUED)
        row = {"key": draw(st.sampled_from("aab")), "time_us": time, "v": value, "id": f"e{number * 7 % 20:02}"}
        own = {} if config.max_gap is None else {"g": draw(st.sampled_from([None, 1, config.gap, config.max_gap]))}
        stream.append({**row, **own})
    return config, stream


def check_batch_boundaries(covered: tuple[Config, list[Row]], cuts: list[bool]) -> None:
    config, stream = covered
    outcomes, one_by_one = run(config, [[row] for row in stream])
    assert all(out["counts"]["accepted"] == out["counts"]["input"] for out in outcomes)
    _, at_once = run(config, [stream])
    split: list[list[Row]] = [[]]
    for row, cut in zip(stream, [*cuts, *[False] * len(stream)], strict=False):
        if cut:
            split.append([])
        split[-1].append(row)
    _, in_parts = run(config, split)
    assert one_by_one == at_once == in_parts


ORDER = {"config": configs(), "drafted": batches(rows("ab")), "seed": st.integers(0, 9)}
ORDER_OF_TIES = {**ORDER, "config": configs(aggregates=ALL), "drafted": batches(events("a", VALUED), most=4)}
SHARDS = {"config": configs(), "drafted": batches(rows("abcdef"))}
ORIGIN = {
    "config": configs(BASIC),
    "drafted": batches(rows("ab"), most=5),
    "shift": st.sampled_from([-1, 1, -7, -30 * 60_000_000, -(10**15), 10**14 + 7]),
}
BOUNDARIES = {"covered": covered_streams(), "cuts": st.lists(st.booleans(), max_size=14)}

test_order_inside_a_batch_does_not_matter = ci(30, **ORDER)(check_order_inside_a_batch)
test_order_of_ties_does_not_matter = ci(20, **ORDER_OF_TIES)(check_order_inside_a_batch)
test_shards_do_not_matter = ci(20, **SHARDS)(check_shards)
test_origin_of_time_does_not_matter = ci(20, **ORIGIN)(check_origin_of_time)
test_batch_boundaries_do_not_matter_while_grace_covers = ci(20, **BOUNDARIES)(check_batch_boundaries)
LIMITED = {
    "order": in_each(
        10,
        check_order_inside_a_batch,
        lambda limits: {**ORDER, "config": configs(limits=limits)},
    ),
    "shards": in_each(10, check_shards, lambda limits: {**SHARDS, "config": configs(limits=limits)}),
    "origin": in_each(10, check_origin_of_time, lambda limits: {**ORIGIN, "config": configs(BASIC, limits=limits)}),
    "boundaries": in_each(
        10, check_batch_boundaries, lambda limits: {**BOUNDARIES, "covered": covered_streams(limits=limits)}
    ),
}
globals().update({f"test_{what}_{name}": test for what, tests in LIMITED.items() for name, test in tests.items()})
test_order_inside_a_batch_does_not_matter_slow = slow(30, **ORDER)(check_order_inside_a_batch)
test_order_of_ties_does_not_matter_slow = slow(20, **ORDER_OF_TIES)(check_order_inside_a_batch)
test_shards_do_not_matter_slow = slow(20, **SHARDS)(check_shards)
test_origin_of_time_does_not_matter_slow = slow(20, **ORIGIN)(check_origin_of_time)
test_batch_boundaries_do_not_matter_while_grace_covers_slow = slow(20, **BOUNDARIES)(check_batch_boundaries)
