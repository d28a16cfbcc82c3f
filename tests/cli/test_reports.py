"""What is printed of a job's counts, and of a batch that deletes."""

import pytest

from sessionlake.cli.jobs import report_lines
from sessionlake.cli.stream import print_batch
from sessionlake.warehouse.batch_commit import BatchCommit, Settings

SIZES = {"files_before": 97, "files_after": 1, "bytes_before": 3_200_000, "bytes_after": 1_100_000}


@pytest.mark.parametrize(
    ("counts", "lines"),
    [
        (
            {"rows_folded": 1234, "rows_trimmed": 0, **{f"session_changelog_{name}": n for name, n in SIZES.items()}},
            ["1,234 rows folded", "session_changelog: 97 files became 1, 3.2 MB became 1.1 MB"],
        ),
        (
            {"sessions_files_before": 0, "sessions_files_after": 1, "sessions_bytes_before": 0, "sessions_bytes_after": 5},
            ["sessions: 0 files became 1, 0 bytes became 5 bytes"],
        ),
        (
            {"sessions_files_before": 1, "sessions_files_after": 1, "sessions_bytes_before": 5, "sessions_bytes_after": 5},
            ["sessions: 1 file, 5 bytes, as before"],
        ),
        ({"sessions_files_before": 2, "sessions_bytes_before": 5}, ["sessions: 2 files, 5 bytes"]),
        (
            {"rows_read": 9, "matched": 5, "emitted_before": 1, "expired": 4, "left_for_next_run": 0},
            ["9 rows read from snapshot and changelog, 5 matched, 1 with a tombstone from before, 4 expired"],
        ),
        ({"late_events": 0, "restated": 0}, ["0 late events"]),
    ],
)  # fmt: skip
def test_lines(counts: dict[str, int], lines: list[str]) -> None:
    assert report_lines(counts) == lines


@pytest.mark.parametrize(
    ("counts", "told"), [({"upserts": 3}, "3 changed  w"), ({"deletes": 425}, "0 changed, 425 deleted  w")]
)
def test_a_batch_says_what_it_deleted(capsys: pytest.CaptureFixture[str], counts: dict[str, int], told: str) -> None:
    nothing = Settings({}, {}, {})
    print_batch(BatchCommit("p", "c", 7, "x", {}, counts, (), "1", nothing, None, 0, 1_500_000))
    assert told in capsys.readouterr().out
