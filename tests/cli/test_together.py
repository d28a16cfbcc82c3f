"""Pipelines of one process look for input at moments of their own."""

from pathlib import Path

from sessionlake.cli.together import staggered
from sessionlake.config.durations import parse_duration
from tests.support import make_config


def test_pipelines_of_one_period_get_periods_that_differ_a_little(tmp_path: Path) -> None:
    config = make_config(tmp_path, pipeline={"trigger": "10 seconds"})
    periods = [parse_duration(staggered(config, place).pipeline.trigger) for place in range(50)]
    assert len({*periods}) == 50
    assert (periods[0], max(periods) < 1.1 * periods[0]) == (10_000_000, True)


def test_a_pipeline_that_never_waits_stays_so(tmp_path: Path) -> None:
    config = make_config(tmp_path, pipeline={"trigger": "0 seconds"})
    assert staggered(config, 7) == config
