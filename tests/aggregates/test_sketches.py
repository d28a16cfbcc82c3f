import math
import struct
import sys
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from ddsketch import DDSketch
from ddsketch.mapping import LogarithmicMapping
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import build_aggregates
from sessionlake.aggregates.sketches import GAMMA, RELATIVE_ACCURACY
from tests.aggregates.columns import TYPED, every_type, order_of, randoms, typed
from tests.operators.sessions.merging import Event, by_group, events, lifted, merged, values_of
from tests.support import examples

FRACTIONS = (0.0, 0.25, 0.5, 0.99, 1.0)


@every_type
@examples(40)
@given(data=st.data(), random=randoms)
def test_count_distinct_is_exact_up_to_the_bound(kind: str, data: st.DataObject, random: Random) -> None:
    rows = data.draw(typed(kind))
    for text in ("count_distinct(x, 30)", "count_distinct(x)", "approx_count_distinct(x)"):
        found = values_of(text, TYPED[kind][0], rows, random)
        for group, members in by_group(rows).items():
            assert found[group] == len({order_of(m.value) for m in members if m.value is not None})


@pytest.mark.parametrize("kind", ["long", "double", "string", "decimal"])
def test_count_distinct_beyond_the_bound_is_near(kind: str) -> None:
    random = Random(3)
    make = {"string": str, "double": float}.get(kind, int)
    distinct = 20_000
    numbers = [random.randrange(distinct) for _ in range(distinct)] + list(range(distinct))
    rows = [Event(0, 0, None, make(n)) for n in numbers]
    for text, bound in (("count_distinct(x, 1000)", 1000), ("approx_count_distinct(x)", 1024)):
        found = values_of(text, TYPED[kind][0], rows, random)[0]
        assert abs(found - distinct) < 4 * distinct / math.sqrt(bound)


def rank_value(values: list[float], fraction: float) -> float:
    return sorted(values, key=order_of)[math.floor(fraction * (len(values) - 1))]


def near(found: float, exact: float) -> bool:
    if exact == 0 or not math.isfinite(exact):
        return order_of(found) == order_of(exact)
    return math.isclose(found, exact, rel_tol=0.0101, abs_tol=1e-323)


@pytest.mark.parametrize("fraction", FRACTIONS)
@examples(40)
@given(rows=events(st.floats() | st.floats(-1000, 1000)), random=randoms)
def test_percentile_of_any_double_within_one_percent(fraction: float, rows: list[Event], random: Random) -> None:
    found = values_of(f"percentile(x, {fraction})", pa.float64(), rows, random)
    for group, members in by_group(rows).items():
        some = [m.value for m in members if m.value is not None]
        assert near(found[group], rank_value(some, fraction)) if some else found[group] is None


@pytest.mark.parametrize(
    "value", [5e-324, sys.float_info.min, sys.float_info.max, -sys.float_info.max, 1e300, -5e-324, -0.0, math.inf]
)
def test_percentile_at_the_ends_of_double(value: float) -> None:
    found = values_of("percentile(x, 0.5)", pa.float64(), [Event(0, 0, None, value)] * 3, Random(1))[0]
    assert near(found, value)


@pytest.mark.parametrize("kind", ["long", "decimal", "bool"])
@examples(40)
@given(data=st.data(), random=randoms)
def test_percentile_of_exact_numbers(kind: str, data: st.DataObject, random: Random) -> None:
    rows = data.draw(typed(kind))
    found = values_of("percentile(x, 0.9)", TYPED[kind][0], rows, random)
    for group, members in by_group(rows).items():
        some = [float(m.value) for m in members if m.value is not None]
        assert near(found[group], rank_value(some, 0.9)) if some else found[group] is None


@pytest.mark.parametrize("fraction", FRACTIONS)
@examples(30)
@given(rows=events(st.floats(-1e9, 1e9).filter(lambda v: v == 0 or abs(v) > 1e-9), size=60), random=randoms)
def test_percentile_equals_the_ddsketch_library(fraction: float, rows: list[Event], random: Random) -> None:
    found = values_of(f"percentile(x, {fraction})", pa.float64(), rows, random)
    for group, members in by_group(rows).items():
        sketch = DDSketch(0.01)
        for member in members:
            if member.value is not None:
                sketch.add(member.value)
        expected = sketch.get_quantile_value(fraction)
        if expected is None:
            assert found[group] is None
        else:
            # The library answers for negative numbers at a rank counted from the other end, a bucket apart at most
            # where the rank is whole; both keep the accuracy.
            some = [m.value for m in members if m.value is not None]
            whole = float(fraction * (len(some) - 1)).is_integer()
            assert math.isclose(found[group], expected, rel_tol=1e-9) or (not whole and rank_value(some, fraction) <= 0)


# The bucket of each, as ddsketch 3.0.1's mapping gave it while the package still imported that.
FROZEN = {
    5e-324: 93852,
    sys.float_info.min: 95654,
    1e-9: 130036,
    0.1: 130957,
    0.5: 131038,
    1.0: 131072,
    1.02: 131073,
    1.0203: 131074,
    2.0: 131107,
    math.pi: 131130,
    1234.5: 131428,
    1e15: 132799,
    1e300: 165610,
    sys.float_info.max: 166560,
    -0.1: -130957,
    -1234.5: -131428,
    0.0: 0,
    math.inf: 1 << 30,
    -math.inf: -(1 << 30),
    math.nan: (1 << 30) + 1,
}


def test_buckets_are_those_of_states_that_were_stored_before() -> None:
    (aggregate,) = build_aggregates({"p": "percentile(x, 0.5)"}, {"x": pa.float64()})
    rows = [Event(0, 0, None, value) for value in FROZEN]
    (state,) = merged(aggregate, [lifted(aggregate, rows, pa.float64(), Random(4))], Random(4)).states
    assert state.to_pylist() == [b"".join(struct.pack("<iq", code, 1) for code in sorted(FROZEN.values()))]
    assert GAMMA == LogarithmicMapping(RELATIVE_ACCURACY).gamma == float.fromhex("0x1.052bf5a814afdp+0")


def test_percentile_of_many_values_in_many_groups() -> None:
    rng = np.random.default_rng(5)
    values = rng.lognormal(3, 2, 30_000)
    groups = rng.integers(0, 3000, len(values))
    rows = [Event(int(g), 0, None, float(v)) for g, v in zip(groups, values, strict=True)]
    found = values_of("percentile(x, 0.75)", pa.float64(), rows, Random(2))
    for group, members in by_group(rows).items():
        assert near(found[group], rank_value([m.value for m in members], 0.75))
