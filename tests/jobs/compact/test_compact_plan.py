"""How the snapshot's rows are dealt out to files, and which files are to be rewritten, on numbers alone."""

from collections.abc import Iterator
from datetime import date, timedelta
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessionlake.jobs.compact.plan import LEAST_BYTES, MB, SPARE_FILES, File, Share, ragged, shares, touched

DAY_0 = date(2020, 1, 1)
FILE = 128 * MB


def day(number: int) -> str:
    return (DAY_0 + timedelta(days=number)).isoformat()


def file(first: int, last: int | None = None, size: int = 16 * MB, deleted: int = 0) -> File:
    return File(
        f"{first}-{last}-{size}-{deleted}", size, 1000, deleted, day(first), day(first if last is None else last)
    )


def as_files(divided: list[Share], sizes: dict[str, float]) -> Iterator[File]:
    """Yield the files that shares become."""
    for number, share in enumerate(divided):
        size = int(sum(sizes[d] for d in share.dates) / share.files)
        for part in range(share.files):
            yield File(f"{number}.{part}", size, 1, 0, share.dates[0], share.dates[-1])


days_rows = st.dictionaries(
    st.integers(0, 4000).map(day), st.one_of(st.integers(0, 100), st.integers(0, 5_000_000)), max_size=200
)


@given(rows=days_rows, cores=st.integers(1, 64))
def test_every_date_is_in_one_share_and_files_follow_the_bytes(rows: dict[str, int], cores: int) -> None:
    row_bytes = 64.0
    divided = shares(rows, row_bytes, FILE, cores)
    assert [d for share in divided for d in share.dates] == sorted(rows)
    assert all(share.files == 1 or len(share.dates) == 1 for share in divided)
    total = sum(rows.values()) * row_bytes
    # Two neighbours may together be as small as one file's least size: where a large date begins one of its own.
    assert sum(share.files for share in divided) <= 2 * total / LEAST_BYTES + 1


@example(rows={day(0): 2 * MB + 1}, cores=6)
@given(rows=days_rows, cores=st.integers(1, 64))
def test_what_was_rewritten_is_not_rewritten_again(rows: dict[str, int], cores: int) -> None:
    sizes = {d: n * 64.0 for d, n in rows.items()}
    files = list(as_files(shares(rows, 64.0, FILE, cores), sizes))
    again = ragged(files, FILE)
    # Only small ones that large dates lie between may be put together once more.
    assert all(f.bytes < LEAST_BYTES for f in again)
    if again:
        counts = {f.first: ceil(f.bytes / 64) for f in again}
        rest = [f for f in files if f not in again]
        sizes = {d: n * 64.0 for d, n in counts.items()}
        assert ragged([*rest, *as_files(shares(counts, 64.0, FILE, cores), sizes)], FILE) == []


def test_ten_sparse_years_are_one_file_and_dense_dates_have_their_own() -> None:
    sparse = {day(n): 4 for n in range(3650)}
    assert [share.files for share in shares(sparse, 80, FILE, 2)] == [1]
    dense = {day(n): 333_000 for n in range(30)}
    divided = shares(dense, 45, FILE, 2)
    assert [share.dates for share in divided] == [[d] for d in dense]
    assert all(share.files == 1 for share in divided)


@pytest.mark.parametrize(
    ("size", "cores", "files"), [(FILE, 1, 1), (FILE + 64, 1, 2), (FILE, 2, 2), (FILE, 64, 1 + SPARE_FILES // 2)]
)
def test_a_large_date_is_cut_by_its_bytes_and_for_cores_that_would_idle(size: int, cores: int, files: int) -> None:
    assert [share.files for share in shares({day(0): size // 64}, 64, FILE, cores)] == [files]


def test_a_fold_touches_the_files_whose_dates_it_changes_and_those_of_unknown_dates() -> None:
    unknown = File("unknown", MB, 0, 0, "0001-01-01", "9999-12-31")
    files = [file(0, 9), file(10), file(11, 11), file(12, 30), unknown]
    assert touched(files, [day(10), day(31)]) == [files[1], unknown]
    assert touched(files, [day(9), day(12)]) == [files[0], files[3], unknown]


def test_files_beyond_what_a_date_needs_are_rewritten_with_all_that_overlap_them() -> None:
    dense = [file(n) for n in range(30)]
    wide = [file(0, 29, MB * (5 + n)) for n in range(SPARE_FILES + 1)]
    assert ragged([*dense, *wide[:-1]], FILE) == []
    assert ragged([*dense, *wide], FILE) == [*dense, *wide]
    narrow = [file(3, 3, MB * (5 + n)) for n in range(SPARE_FILES + 1)]
    assert ragged([*dense, *narrow], FILE) == [dense[3], *narrow]
    assert ragged([file(3, 3, FILE + n) for n in range(40)], FILE) == []


def test_small_files_and_worn_ones_are_rewritten_and_no_other() -> None:
    small = [file(2 * n, 2 * n, MB) for n in range(SPARE_FILES + 1)]
    dense = [file(2 * n + 1) for n in range(SPARE_FILES)]
    assert ragged([*dense, *small[:-1]], FILE) == []
    assert ragged([*dense, *small], FILE) == small
    worn, used = file(100, deleted=101), file(101, deleted=100)
    assert ragged([*dense, worn, used], FILE) == [worn]


def test_files_of_one_share_do_not_overlap_the_next() -> None:
    divided = shares({day(n): n % 7 * 40_000 for n in range(100)}, 64, FILE, 2)
    assert all(a.dates[-1] < b.dates[0] for a, b in pairwise(divided))
