"""Merges and readings of rows with large keys and values take a bounded part of them into memory."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sessionlake.store import levels
from sessionlake.store.files import FileSegments
from sessionlake.store.levels import Cut, Levels

STEP = 10_000
ROWS = {
    "keys": [(b"%03d" % key + b"k" * 1000, b"v") for key in range(40)],
    "values": [(b"%03d" % key, b"v" * 1000) for key in range(40)],
    "one value of each batch": [(b"a", b"v" * 3 * STEP)],
    "several such": [(b"%d" % key, b"v" * 3 * STEP) for key in range(3)],
    "one among small ones": [(b"%03d" % key, b"v" * (3 * STEP if key == 20 else 5)) for key in range(40)],
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of the bytes that each step takes, of all levels together, beside its largest row."""
    found: list[int] = []

    def noted(take: Any) -> Any:
        def noting(cut: Cut, step: int) -> Any:
            rows = take(cut, step)
            sizes = [
                len(key) + len(value or b"")
                for some in rows
                for key, value in zip(some.keys.to_pylist(), some.values.to_pylist(), strict=True)
            ]
            found.append(sum(sizes) - max(sizes))
            return rows

        return noting

    monkeypatch.setattr(levels, "STEP_BYTES", STEP)
    for name in ("take", "take_last"):
        monkeypatch.setattr(Cut, name, noted(getattr(Cut, name)))
    return found


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("each_its_own", [False, True])
def test_a_step_takes_a_bounded_part_and_one_row(
    tmp_path: Path, taken: list[int], kind: str, *, each_its_own: bool
) -> None:
    """Whether batches write the same keys, or each batch its own."""
    model: dict[bytes, bytes] = {}
    with closing(FileSegments(tmp_path / "p" / "0")) as db:
        for batch in range(2 * levels.FAN + 3):
            end = b"%02d" % batch
            some = {key + end if each_its_own else key: value + end for key, value in ROWS[kind]}
            db.write({1: (list(some), list(some.values()))}, {})
            model |= some
        wanted = sorted(model.items())
        assert len(taken) > 1
        assert db.items(1) == wanted
        assert both(db._state.segments[1]) == wanted[::-1]
    assert max(taken) <= STEP


def both(of: Levels) -> list[tuple[bytes, bytes]]:
    """Return the rows against the order of keys."""
    return [
        item
        for rows in of.items(None, None, None, backward=True)
        for item in list(zip(rows.keys.to_pylist(), rows.values.to_pylist(), strict=True))[::-1]
    ]


@pytest.mark.parametrize("backward", [False, True])
def test_no_rows_are_asked_for(tmp_path: Path, *, backward: bool) -> None:
    with closing(FileSegments(tmp_path / "p" / "0")) as db:
        db.write({1: ([b"a"], [b"1"])}, {})
        assert list(db._state.segments[1].items(None, None, 0, backward=backward)) == []
        assert db.items(1, limit=0) == []


@pytest.mark.slow
def test_20000_rows_with_keys_of_64_kb_stay_below_600_mb(tmp_path: Path) -> None:
    """It were 4,234 MB as long as steps were bounded by values alone, and are 413."""
    command = [sys.executable, "-m", "tests.store.large_rows", str(tmp_path), "20000", "65536"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 550
