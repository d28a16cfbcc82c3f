"""The store under fire, beside a dict: faults at any file operation. `make crash-store SECONDS=3600` runs more of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessionlake.errors import StoreError
from sessionlake.store import files
from sessionlake.store.directory import CURRENT, IDENTITY, LOCK, MARKER
from sessionlake.store.files import FileSegments
from sessionlake.store.levels import Cut
from sessionlake.store.runs import Run
from tests.store.crash.history import WrongError
from tests.store.crash.runs import run_history

# A process that is killed closes no file.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_store_is_always_a_commit_of_the_dict() -> None:
    assert _run(14) > 500


def without_digests(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "digest", "any")


def clearing_in_another_order(patch: pytest.MonkeyPatch) -> None:
    def emptied(path: Path) -> bool:
        for file in sorted(path.iterdir(), key=lambda file: file.name in (CURRENT, IDENTITY)):
            if file.name not in (MARKER, LOCK):
                file.unlink()
        return True

    patch.setattr(files, "empty", emptied)


def making_the_identity_first(patch: pytest.MonkeyPatch) -> None:
    begin = FileSegments._begin

    def begun(store: FileSegments) -> None:
        if not any((store.path / name).exists() for name in (CURRENT, IDENTITY)):
            (store.path / IDENTITY).write_text("early")
            store._commit(files.State())
        begin(store)

    patch.setattr(FileSegments, "_begin", begun)


def removing_files_that_may_count(patch: pytest.MonkeyPatch) -> None:
    turn = FileSegments._turn_to

    def turned(store: FileSegments, state: Any, made: Any) -> None:
        try:
            turn(store, state, made)
        except OSError:
            store._remove(made)
            raise

    patch.setattr(FileSegments, "_turn_to", turned)


def using_names_again(patch: pytest.MonkeyPatch) -> None:
    write = FileSegments.write

    def written(store: FileSegments, *args: Any) -> None:
        numbers = iter(range(store.__dict__.setdefault("used", 0), 1 << 30))
        store._writer, store._numbers = "0" * 16, numbers  # type: ignore[assignment]
        write(store, *args)
        store.__dict__["used"] = next(numbers)

    patch.setattr(FileSegments, "write", written)


def leaving_files_of_a_failed_write(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileSegments, "_sweep", lambda _: None)


def hiding_the_newest_row(patch: pytest.MonkeyPatch) -> None:
    take = Cut.take

    def taken(cut: Cut, step: int) -> Any:
        return take(cut, step)[::-1]

    patch.setattr(Cut, "take", taken)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [
        without_digests,
        clearing_in_another_order,
        making_the_identity_first,
        removing_files_that_may_count,
        using_names_again,
        leaving_files_of_a_failed_write,
        hiding_the_newest_row,
    ],
)
def test_a_planted_fault_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a mend back."""
    mutant(monkeypatch)
    with pytest.raises((WrongError, StoreError)):
        _run(60)


def _run(histories: int) -> int:
    return sum(run_history(seed) for seed in range(histories))
