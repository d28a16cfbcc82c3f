"""Copies of versions on a machine, if the warehouse lies elsewhere: here in a directory that is reached as an object store is."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from sessionlake.errors import SourceError
from sessionlake.sources.lookups import lookup
from sessionlake.sources.lookups.dimension import KEY, Dimension

FOLDER = "s3a://lake/_lookups/users"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lake" / "_lookups" / "users"
    folder.mkdir(parents=True)
    for number in range(2):
        with pa.OSFile(str(folder / f"{number}.arrow"), "wb") as sink:
            Dimension.of(pa.table({KEY: ["ann"], "plan": [number]}), 10).write(sink)
    system = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(lookup, "file_system", lambda uri: (system, uri.removeprefix("s3a://")))
    return folder


def plan_of(tmp_path: Path, file: str) -> Any:
    return lookup.opened(FOLDER, file, str(tmp_path / "store")).table["plan"].to_pylist()


def test_one_copy_stays_and_what_a_killed_task_has_left_goes(lake: Path, tmp_path: Path) -> None:
    assert plan_of(tmp_path, "0.arrow") == [0]
    left, being_copied = (tmp_path / "store" / "users" / name for name in (".left", ".now"))
    for path in (left, being_copied):
        path.touch()
    os.utime(left, (1, 1))
    assert plan_of(tmp_path, "1.arrow") == [1]
    assert sorted(path.name for path in being_copied.parent.iterdir()) == [".now", "1.arrow"]
    (lake / "0.arrow").unlink()
    with pytest.raises(SourceError, match=r"^lookup: 's3a://lake/_lookups/users/0\.arrow' can't be copied to "):
        plan_of(tmp_path, "0.arrow")


def test_a_copy_that_another_task_removes_before_it_is_opened_is_made_again(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del lake
    real, others = lookup.mapped, iter(["1.arrow"])

    def mapped(path: str) -> Dimension:
        for other in others:
            lookup.local_copy(FOLDER, other, str(tmp_path / "store"))
        return real(path)

    monkeypatch.setattr(lookup, "mapped", mapped)
    assert plan_of(tmp_path, "0.arrow") == [0]
