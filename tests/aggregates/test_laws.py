"""The laws of users' aggregates, tried on rows: classes that keep them are let pass, others get a counterexample that is one."""

import re
import time
from typing import Any

import pyarrow as pa
import pytest

from sessionlake.aggregates.folded import Merging
from sessionlake.aggregates.laws import broken_law
from sessionlake.aggregates.spec import build_custom
from tests.aggregates import broken_classes

ROWS = [{"key": "ab"[i % 2], "v": v, "tag": f"t{v}"} for i, v in enumerate([3, 1, None, 4, 1, 5, 9, 2, 6])]


def table(rows: list[dict[str, Any]] = ROWS) -> pa.Table:
    return pa.Table.from_pylist(rows)


def built(name: str, module: str = broken_classes.__name__) -> Merging:
    aggregate = build_custom("mine", f"{module}:{name}")
    assert isinstance(aggregate, Merging)
    return aggregate


@pytest.mark.parametrize("name", ["Largest", "Mean", "Tags", "Distinct", "LongestText", "Total", "AtSome"])
@pytest.mark.parametrize("key", ["key", None])
def test_a_class_that_keeps_the_laws_passes(name: str, key: str | None) -> None:
    assert broken_law(built(name), table(), key=key, seconds=5) is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("AverageOfAverages", r"^merger\(merger\(\S+, \S+\), \S+\) gives \S+, and merger\(.*\) gives \S+; make merger associative and commutative$"),
        ("Newest", r"^merger\((\S+), (\S+)\) gives \2, and merger\(\2, \1\) gives \1; make merger associative and commutative$"),
        ("FirstThree", r"gives .*, and merger\(.*gives .*; make merger associative and commutative$"),
        ("Raising", r"^merger\(.*null.*\) raises TypeError: unsupported operand .*, which stops a batch; let merger take every aggregate that there can be$"),
        ("TotalAndCount", r"^merger\(\[.*\], inverse\(\[.*\]\)\) gives \[0.0, 2\], and initializer\(\) gives \[0, 0\]; make them equal, or remove inverse$"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["key", None])
def test_a_class_that_breaks_one_gets_a_counterexample(name: str, told: str, key: str | None) -> None:
    found = broken_law(built(name), table(), key=key, seconds=5)
    assert found is not None
    assert re.search(told, found), found
    assert "\n" not in found


def test_the_counterexample_is_one() -> None:
    found = broken_law(built("AverageOfAverages"), table(), seconds=5)
    assert found is not None
    sums = re.findall(r"(merger\(.*?\)) gives ([\d.]+)", found)
    assert len(sums) == 2

    def merger(left: float, right: float) -> float:
        return (left + right) / 2

    assert [eval(call, {"merger": merger}) for call, _ in sums] == [float(value) for _, value in sums]  # noqa: S307
    assert sums[0][1] != sums[1][1]


def test_a_step_that_needs_the_ones_before_is_told() -> None:
    found = broken_law(built("Rises"), table(), seconds=5)
    assert found is not None
    assert re.match(
        r"^aggregator\(\{\"v\": \d\}, \[\d, 0\]\) gives 1, and merger\(\[\d, 0\], \[\d, 0\]\) gives 0, where .* write evaluate$",
        found,
    ), found


def test_classes_of_the_pages_keep_the_laws() -> None:
    rows = [{"added": added, "deleted": deleted} for added, deleted in [(1, 2), (None, 3), (5, 0)]]
    for name in ("NetLines", "Everything"):
        assert broken_law(built(name, "tests.testing.net_lines"), table(rows), seconds=5) is None


def test_without_rows_that_count_nothing_is_said() -> None:
    assert broken_law(built("Newest"), table(ROWS[:1])) is None
    assert broken_law(built("Newest"), table([{"v": None}] * 2)) is None
    assert broken_law(built("AtSome"), table([{"v": None}] * 5)) is None


def test_rows_of_other_keys_are_not_merged() -> None:
    rows = [{"key": f"k{v % 2}", "v": v % 2} for v in range(10)]
    assert broken_law(built("Newest"), table(rows), key="key", seconds=5) is None
    assert broken_law(built("Newest"), table(rows), seconds=5) is not None


def test_it_takes_no_longer_than_it_may() -> None:
    begun = time.process_time()
    assert broken_law(built("Tags"), table([{"v": v} for v in range(100_000)]), seconds=0.1) is None
    assert time.process_time() - begun < 2
