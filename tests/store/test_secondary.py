"""A store that is read beside the process that has it open, with a batch's writes laid over it: beside a dict."""

import errno
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.store_engines import ENGINES, StoreEngine
from sessionlake.errors import StoreError
from sessionlake.store.engines import engine_at, opened_by, view_of
from sessionlake.store.secondary import OverlaidSegments, StoreView, identity
from sessionlake.store.segmented import WRITE_SCHEMA
from tests.support import examples

directory = TemporaryDirectory()
STORED = {b"a": b"1", b"b": b"1", b"ba": b"1", b"d": b"1"}
KEYS = [b"", b"a", b"a\0", b"b", b"ba", b"c", b"d", b"e"]
bounds = st.none() | st.sampled_from(KEYS)


@cache
def base(engine: StoreEngine) -> StoreView:
    path = Path(directory.name) / engine
    db = opened_by(engine)(path)
    db.write({7: (list(STORED), list(STORED.values()))}, {"commit": b"c"})
    db.close()
    return view_of(path)


@pytest.mark.parametrize("engine", ENGINES)
@examples(60)
@given(st.dictionaries(st.sampled_from(KEYS), st.none() | st.just(b"2")), bounds, bounds)
def test_writes_are_laid_over_what_is_stored_in_both_directions(
    engine: StoreEngine, written: dict[bytes, bytes | None], low: bytes | None, high: bytes | None
) -> None:
    rows = sorted(written.items())
    columns = [[7] * len(rows), [key for key, _ in rows], [value for _, value in rows]]
    found = OverlaidSegments(base(engine), pa.table(columns, schema=WRITE_SCHEMA))
    model = [
        (key, value)
        for key, value in sorted({**STORED, **written}.items())
        if value is not None and (low is None or key >= low) and (high is None or key <= high)
    ]
    assert list(found.items(7, low, high)) == model
    assert list(found.items(7, low, high, backward=True)) == model[::-1]
    expected = [{**STORED, **written}.get(key) for key in KEYS]
    assert found.get(7, KEYS) == expected
    assert [found.get(7, [key])[0] for key in KEYS] == expected
    assert list(found.items(8, backward=True)) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_view_never_changes_and_outlives_its_store(tmp_path: Path, engine: StoreEngine) -> None:
    path = tmp_path / "db"
    with pytest.raises(FileNotFoundError):
        view_of(path)
    db = opened_by(engine)(path)
    views = []
    for number in range(4):
        db.write({number % 2: ([b"a", b"b"], [b"%d" % number, None])}, {"commit": b"%d" % number})
        views.append(view_of(path))
    db.drop_before(1)
    views.append(view_of(path))
    db.clear()
    db.close()
    shutil.rmtree(path)
    assert [view.meta("commit") for view in views] == [b"0", b"1", b"2", b"3", b"3"]
    found = [[view.get(segment, [b"a", b"b", b"c"])[:2] for segment in view.segments] for view in views]
    nothing = [[[b"0", None]], [[b"0", None], [b"1", None]], [[b"2", None], [b"1", None]], [[b"2", None], [b"3", None]]]
    assert found == [*nothing, [[b"3", None]]]
    assert engine_at(path) == "files"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_store_is_the_same_whatever_is_done_with_it_until_it_is_made_anew(
    tmp_path: Path, engine: StoreEngine
) -> None:
    path = tmp_path / "db"
    assert identity(path) is None
    seen = set()
    for _ in range(2):
        for n in range(3):
            db = opened_by(engine)(path)
            db.write({n: ([b"a"], [b"1"])}, {})
            db.close()
            view_of(path)
            seen.add(identity(path))
    assert len(seen) == 1
    # In its place: a copy, and another one, which may get the numbers of the files that have gone.
    for n in range(3):
        shutil.copytree(path, tmp_path / "copy")
        shutil.rmtree(path)
        assert identity(path) is None
        if n == 1:
            opened_by(engine)(path).close()
            shutil.rmtree(tmp_path / "copy")
        else:
            (tmp_path / "copy").rename(path)
        seen.add(identity(path))
    assert len(seen) == 4


def test_a_marker_that_the_machine_can_not_give_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "db"
    opened_by("files")(path).close()

    def refused(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(StoreError, match=r"can't be read .*Input/output error"):
        view_of(path)
