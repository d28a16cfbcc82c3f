"""The section [window] by count at its bounds: what is just right, and which windows are final."""

from pathlib import Path
from typing import Any, cast

import duckdb
import pytest

from sessionlake.operators.counts.section import CountSection
from sessionlake.operators.counts.spec import Sessions
from sessionlake.stream.positions import PARTITION
from tests.operators.counts.count_support import count_config

SESSION = {"kind": "session", "size": None}


@pytest.mark.parametrize(
    "window",
    [
        {"size": 1, "retention_count": 1},
        {"size": 100},
        {"kind": "hopping", "advance": 3},
        {"kind": "hopping", "size": 4096, "advance": 1, "retention_count": 4096},
        {**SESSION, "max_others": 0, "retention_count": 1},
        {**SESSION, "max_others": 99},
    ],
)
def test_what_is_just_right_is_taken(tmp_path: Path, window: dict[str, Any]) -> None:
    assert count_config(tmp_path, **window).section.TIMED is False


def section_of(root: Path, **window: Any) -> CountSection:
    return cast("CountSection", count_config(root, **window).section)


def test_sessions_end_after_one_message_more_than_max_others(tmp_path: Path) -> None:
    windows = section_of(tmp_path, **SESSION, max_others=2).windows
    assert windows == Sessions(2)
    assert isinstance(windows, Sessions)
    assert windows.gap == 3


@pytest.mark.parametrize(
    ("window", "last"),
    [
        ({"per": "key"}, (0, 0)),
        ({"per": "partition"}, (6, 4)),
        ({**SESSION, "max_others": 0}, (5, 3)),
        ({**SESSION, "max_others": 1}, (4, 2)),
    ],
)
def test_windows_are_final_that_their_partition_has_passed(
    tmp_path: Path, window: dict[str, Any], last: tuple[int, int]
) -> None:
    """The partitions have come to 6 and to 4; a session is final where more than max_others messages have followed its end."""
    state = {"positions": {"events": {"0": 6, "1": 4}}}
    sql = section_of(tmp_path, **window).final_sql("e", state)
    ends = [partition * PARTITION + number for partition in (0, 1) for number in range(1, 9)]
    with duckdb.connect() as database:
        query = f"select e from (select unnest({ends}) as e, 'early' as trigger) where {sql} order by e"
        found = [e for (e,) in database.execute(query).fetchall()]
        assert database.execute(f"select {sql} from (select 8 as e, 'full' as trigger)").fetchall() == [(True,)]
    assert found == [*range(1, last[0] + 1), *range(PARTITION + 1, PARTITION + last[1] + 1)]
