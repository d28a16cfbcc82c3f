"""What `status` says of the last cleanup of [ttl]."""

from pathlib import Path
from typing import Any

import pytest

from sessionlake.cli.status_text import status_lines
from sessionlake.jobs.late.status import LateStatus
from sessionlake.observe.status import Status
from sessionlake.warehouse import schemas
from tests.support import make_config

MINUTE = 60_000_000
HALF = "more than half of ttl.ttl: raise ttl.max_duration or shorten ttl.every"


def lines(config: Any, lag_us: int | None, round_us: int | None) -> list[str]:
    counts = dict.fromkeys(schemas.COUNTS, 0)
    late = LateStatus(0, 0, 0, 0, reconciles=True)
    status = Status(1, 1, 1, counts, True, late, None, lag_us, round_us, 0, "store", "checkpoint", 1, [])
    return [value for label, value in status_lines(config, status, 2) if label == "expiry"]


@pytest.mark.parametrize(
    ("lag", "took", "told"),
    [
        (None, None, []),
        (12 * MINUTE, None, ["lag 12min"]),
        (0, 30 * MINUTE, ["lag 0s, a round takes 30min"]),
        (0, 30 * MINUTE + 1, [f"lag 0s, a round takes 30min 1us, {HALF}"]),
    ],
)
def test_lag_and_a_round_that_takes_more_than_half_of_the_time_to_live(
    tmp_path: Path, lag: int | None, took: int | None, told: list[str]
) -> None:
    ttl = {"pattern": "time_boxed", "ttl": "1 hour"}
    session = {"gap": "10 minutes", "grace": "5 minutes", "retention": "2 hours"}
    assert lines(make_config(tmp_path, session=session, ttl=ttl), lag, took) == told
