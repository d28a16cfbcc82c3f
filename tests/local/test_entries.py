"""Every operator of the registry runs without Spark, by its entry alone."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from sessionlake.config.operators import OPERATORS
from sessionlake.standalone import Pipeline
from sessionlake.testing import Harness
from tests.local.configs import CONFIGS, SIDED, given

MINUTE = 60_000_000
FIRST, SECOND = (
    [{"key": key, "time_us": at + minute * MINUTE, "v": at} for key in "abc"] for at, minute in ((1, 0), (2, 0))
)


def test_every_operator_has_a_config_here() -> None:
    assert CONFIGS.keys() == OPERATORS.keys()


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("operator", OPERATORS)
def test_lost_stores_change_no_output(operator: str, shards: int) -> None:
    with Harness(CONFIGS[operator], shards=shards) as kept, Harness(CONFIGS[operator], shards=shards) as lost:
        for harness in (kept, lost):
            assert harness.process(given(operator, FIRST)).changes
        lost.lose_stores()
        second = [harness.process(given(operator, SECOND)) for harness in (kept, lost)]
        assert second[0].changes == second[1].changes != []
        assert (
            second[0].counts["input"] == second[0].counts["accepted"] == len(SECOND) * (2 if operator in SIDED else 1)
        )
        assert kept.state == lost.state


@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_are_refused_and_ticks_run(operator: str) -> None:
    with Harness(CONFIGS[operator], schema={"v": "long"}) as harness:
        out = harness.process(given(operator, [{"key": "a", "time_us": None, "v": 1}]))
        assert out.dead[0]["reason"]
        assert not out.changes
        assert harness.tick(MINUTE).counts.get("input", 0) == 0
        out = harness.process(given(operator, []), corrections=[{"kind": "no such kind", "key": "a"}])
        assert [row["correction_id"] for row in out.stale] == ["000000000000"]


@pytest.mark.parametrize(("events", "removed"), [(1, 0), (2, 1)])
def test_a_tombstone_removes_a_window_by_count_that_is_full(events: int, removed: int) -> None:
    with Harness(CONFIGS["count"]) as harness:
        (*_, sent) = harness.process([{"key": "a", "time_us": at, "v": 1} for at in range(events)]).changes
        named = {"key": "a", "ordinal": sent["window_start"], "revision": sent["revision"]}
        out = harness.process([], corrections=[{"kind": "tombstone", **named}])
    assert [row["op"] for row in out.changes] == ["delete"] * removed
    assert len(out.stale) == 1 - removed


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_directory_goes_on_from_its_last_flush(operator: str, tmp_path: Path) -> None:
    """Beside the harness of the same config, whose stores are never closed."""
    names = ["left", "right"] if operator in SIDED else [None]
    with Harness(CONFIGS[operator]) as harness:
        for rows in (FIRST, SECOND):
            with Pipeline(tmp_path / "state", CONFIGS[operator], batch=100) as run:
                for name, row in itertools.product(names, rows):
                    run.add_message(row, name=name, clock_us=0)
                assert run.get_result() == harness.process(given(operator, rows), clock_us=0).changes
                run.flush()
                run.add_message({**rows[0], "v": 1000}, name=names[0], clock_us=0)


def test_no_operator_needs_spark() -> None:
    code = (
        "import sys; from sessionlake.config.operators import OPERATORS, named; import sessionlake.standalone, sessionlake.testing\n"
        "for entry in OPERATORS.values(): named(entry.operator), named(entry.tables)\n"
        "assert not any(name.split('.')[0] == 'pyspark' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
