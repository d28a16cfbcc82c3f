"""The lines that `run` prints: of each batch, and of the whole run for the calling program."""

import json
from pathlib import Path

import pytest

from sessionlake.cli.stream import print_batch, print_metrics, print_unpublished
from sessionlake.stream.run import RunSummary
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from tests.support import make_config


@pytest.mark.parametrize(
    ("counts", "changes"),
    [
        ({"input": 7, "late": 2, "upserts": 1200}, "7 events, 2 late      1,200 changed  watermark -  1.5 s"),
        ({"input": 0, "deletes": 425}, "0 events          0 changed, 425 deleted  watermark -  1.5 s"),
    ],
)
def test_deletes_of_a_batch_are_counted_beside_changes(
    capsys: pytest.CaptureFixture[str], counts: dict[str, int], changes: str
) -> None:
    settings = Settings(rebuild={}, live={}, types={})
    print_batch(BatchCommit("p", "c", 3, "a", {}, counts, (), "", settings, None, started_us=0, committed_us=1_500_000))
    assert capsys.readouterr().out.split(None, 2)[2] == f"{changes}\n"


def test_a_long_line_of_a_batch_is_not_broken_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    counts = dict.fromkeys(("input", "late", "dead", "dropped", "filtered", "duplicate", "upserts"), 123_456_789)
    settings = Settings(rebuild={}, live={}, types={})
    batch = BatchCommit("p", "c", 3, "a", {}, counts, (), "", settings, None, started_us=0, committed_us=1_500_000)
    print_batch(batch, "a pipeline of a long name  ")
    (line,) = capsys.readouterr().out.splitlines()
    assert len(line) > 140
    assert line.endswith("watermark -  1.5 s")


def test_what_a_run_leaves_to_publish_is_said_with_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sunk = make_config(tmp_path, sink={"delta": {"path": str(tmp_path / "out")}})
    print_unpublished("clicks.toml", {"clicks": sunk, "plain": make_config(tmp_path)})
    assert capsys.readouterr().out == (
        "not yet in sink.delta of clicks: run `sessionlake publish clicks.toml --once`\n"
    )
    print_unpublished("clicks.toml", {"plain": make_config(tmp_path)})
    assert capsys.readouterr().out == ""


def test_the_last_line_names_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    print_metrics(RunSummary(2, {"input": 7}, None, []))
    assert json.loads(capsys.readouterr().out) == {
        "job": "run",
        "batches": 2,
        "input": 7,
        "watermark": None,
        "watermark_lag_seconds": None,
    }
