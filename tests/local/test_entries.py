"""Every operator of the registry runs without Spark, by its entry alone."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.operators import OPERATORS
from sessionlake.standalone import Pipeline
from sessionlake.testing import Harness

MINUTE = 60_000_000
SOURCE = {"kind": "files", "path": "events", "format": "json"}
EVENT = {"key": "key", "time": "time_us", "time_unit": "us"}
SIDE = {"source": SOURCE, "event": {"time": "time_us", "time_unit": "us"}, "columns": ["v"]}
EVENTS = {"source": SOURCE, "event": EVENT, "aggregates": {"total": "sum(v)"}}
CONFIGS: dict[str, dict[str, Any]] = {
    "session": {**EVENTS, "session": {"gap": "1 minute", "grace": "1 hour", "retention": "1 day"}},
    "window": {
        **EVENTS,
        "window": {"kind": "tumbling", "size": "1 minute", "grace": "1 hour", "retention_time": "1 day"},
        "emit": {"early": "batch", "late": "batch"},
    },
    "count": {
        **EVENTS,
        "window": {"kind": "tumbling", "by": "count", "size": 2, "retention_time": "1 day", "retention_count": 100},
        "emit": {"early": "batch"},
    },
    "table": {"source": SOURCE, "event": EVENT, "table": {"columns": ["v"], "retention": "1 day"}},
    "group": {**EVENTS, "group": {}},
    "join": {
        "join": {
            "on": ["key"],
            "left": {"name": "l", "size": "1 minute", **SIDE},
            "right": {"name": "r", "size": "1 minute", **SIDE},
            "retention_time": "1 day",
        }
    },
    "table_join": {
        "table_join": {
            "on": ["key"],
            "left": {"name": "l", "columns": ["v"], **SIDE},
            "right": {"name": "r", "columns": ["v"], **SIDE},
        }
    },
    "process": {
        "source": SOURCE,
        "event": EVENT,
        "process": {
            "class": "tests.local.running_sums:RunningSums",
            "columns": ["v"],
            "retention": "1 day",
            "output": {"total": "long"},
        },
    },
}
"""A config by operator; a new operator adds its own."""
SIDED = ("join", "table_join")
"""The operators of two inputs."""
FIRST, SECOND = (
    [{"key": key, "time_us": at + minute * MINUTE, "v": at} for key in "abc"] for at, minute in ((1, 0), (2, 0))
)


def given(operator: str, rows: list[dict[str, Any]]) -> Any:
    """Return rows of each of the operator's inputs."""
    return {"left": rows, "right": rows} if operator in SIDED else rows


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
                assert run.get_result() == harness.process(given(operator, rows)).changes
                run.flush()
                run.add_message({**rows[0], "v": 1000}, name=names[0], clock_us=0)


def test_no_operator_needs_spark() -> None:
    code = (
        "import sys; from sessionlake.config.operators import OPERATORS, named; import sessionlake.standalone, sessionlake.testing\n"
        "for entry in OPERATORS.values(): named(entry.operator), named(entry.tables)\n"
        "assert not any(name.split('.')[0] == 'pyspark' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
