"""A store that is read beside the process that has it open, with a batch's writes laid over it: beside a dict."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.store.files import FileSegments
from sessionlake.store.secondary import OverlaidSegments, SecondarySegments, identity
from sessionlake.store.segmented import WRITE_SCHEMA
from tests.support import examples

directory = TemporaryDirectory()
STORED = {b"a": b"1", b"b": b"1", b"ba": b"1", b"d": b"1"}
KEYS = [b"", b"a", b"a\0", b"b", b"ba", b"c", b"d", b"e"]
bounds = st.none() | st.sampled_from(KEYS)


@cache
def base() -> SecondarySegments:
    path = Path(directory.name) / "db"
    db = FileSegments(path)
    db.write({7: (list(STORED), list(STORED.values()))}, {})
    db.close()
    return SecondarySegments(path)


@examples(60)
@given(st.dictionaries(st.sampled_from(KEYS), st.none() | st.just(b"2")), bounds, bounds)
def test_writes_are_laid_over_what_is_stored_in_both_directions(
    written: dict[bytes, bytes | None], low: bytes | None, high: bytes | None
) -> None:
    rows = sorted(written.items())
    columns = [[7] * len(rows), [key for key, _ in rows], [value for _, value in rows]]
    found = OverlaidSegments(base(), pa.table(columns, schema=WRITE_SCHEMA))
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


def test_a_store_is_the_same_whatever_is_done_with_it_until_it_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "db"
    assert identity(path) is None
    seen = set()
    for _ in range(2):
        for n in range(3):
            db = FileSegments(path)
            db.write({n: ([b"a"], [b"1"])}, {})
            db.close()
            SecondarySegments(path)
            seen.add(identity(path))
    assert len(seen) == 1
    # In its place: a copy, and another one, which may get the numbers of the files that have gone.
    for n in range(3):
        shutil.copytree(path, tmp_path / "copy")
        shutil.rmtree(path)
        assert identity(path) is None
        if n == 1:
            FileSegments(path).close()
            shutil.rmtree(tmp_path / "copy")
        else:
            (tmp_path / "copy").rename(path)
        seen.add(identity(path))
    assert len(seen) == 4
