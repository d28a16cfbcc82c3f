"""Pipelines of one process look for input at moments of their own."""

from pathlib import Path

import pytest

from sessionlake.cli.together import _report, staggered
from sessionlake.config.durations import parse_duration
from sessionlake.config.graph import Graph
from sessionlake.config.project import Project
from sessionlake.project.together import Ended, How
from sessionlake.stream.run import RunSummary
from tests.support import make_config


def test_pipelines_of_one_period_get_periods_that_differ_a_little(tmp_path: Path) -> None:
    config = make_config(tmp_path, pipeline={"trigger": "10 seconds"})
    periods = [parse_duration(staggered(config, place).pipeline.trigger) for place in range(50)]
    assert len({*periods}) == 50
    assert (periods[0], max(periods) < 1.1 * periods[0]) == (10_000_000, True)


def test_one_that_is_skipped_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended: dict[str, Ended[RunSummary]] = {
        "days": Ended(How.SKIPPED),
        "hours": Ended(How.SKIPPED, because=("visits",)),
        "visits": Ended(How.FAILED, error=ValueError("x")),
    }
    project = Project(str(tmp_path), {}, Graph((*ended,), ()))
    _report(project, ended, once=True)
    told = capsys.readouterr()
    assert told.out.splitlines()[:3] == [
        "days    skipped: a pipeline that it reads has no batches yet",
        "hours   skipped: it reads visits",
        "visits  failed",
    ]
    line = f"sessionlake: run: 1 of 3 pipelines of {str(tmp_path)!r} failed: visits; skipped: days, hours"
    assert told.err.splitlines() == [line]


def test_a_pipeline_that_never_waits_stays_so(tmp_path: Path) -> None:
    config = make_config(tmp_path, pipeline={"trigger": "0 seconds"})
    assert staggered(config, 7) == config
