"""The newest version of each row, against a plain model."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar import newest as module
from sessionlake.columnar.newest import KEY, LIVE, NAME, OLDEST, VERSION, newest

Version = tuple[str, int, int, bool]
"""Key, further name, version and whether it is live."""
SCHEMA = pa.schema(
    {KEY: pa.string(), f"{NAME}1": pa.int64(), VERSION: pa.int64(), LIVE: pa.bool_(), "number": pa.int64()}
)
VERSIONS = st.lists(
    st.tuples(st.sampled_from(["", "a", "b\0"]), st.integers(-1, 2), st.integers(OLDEST, 9), st.booleans()),
    unique_by=lambda version: version[:3],
)


def pieces_of(versions: list[Version], size: int, *, unversioned: int) -> list[pa.Table]:
    rows = [
        {KEY: key, f"{NAME}1": name, VERSION: version, LIVE: live, "number": number}
        for number, (key, name, version, live) in enumerate(versions)
    ]
    rows += [{KEY: "a", "number": -1 - number} for number in range(unversioned)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    return [table.slice(at, size) for at in range(0, max(len(table), 1), size)]


@given(VERSIONS, st.integers(1, 30), st.integers(0, 3), st.sampled_from([0, 100, 1 << 20]))
def test_the_newest_versions_are_those_of_a_model(
    versions: list[Version], size: int, unversioned: int, held: int
) -> None:
    last: dict[tuple[str, int], int] = {}
    for number, (key, name, version, _) in enumerate(versions):
        before = last.get((key, name))
        if before is None or versions[before][2] < version:
            last[key, name] = number
    wanted = [
        *((versions[number][0], number) for number in last.values() if versions[number][3]),
        *(("a", -1 - number) for number in range(unversioned)),
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_HELD_BYTES", held)
        found = newest(pieces_of(versions, size, unversioned=unversioned))
    assert found.column_names == [KEY, "number"]
    assert sorted((row[KEY], row["number"]) for row in found.to_pylist()) == sorted(wanted)


def test_rows_without_versions_are_left_as_they_are() -> None:
    pieces = [pa.table({KEY: ["a", "a"], "number": [1, 1]}), pa.table({KEY: ["a"], "number": [1]})]
    assert newest(pieces) == pa.concat_tables(pieces)


def test_many_versions_of_a_row_are_never_held_at_once() -> None:
    before, held = pa.total_allocated_bytes(), [0]

    def versions(count: int) -> Iterator[pa.Table]:
        for number in range(count):
            held.append(pa.total_allocated_bytes() - before)
            value = pa.array([bytes([number % 256]) * (1 << 20)])
            yield pa.table({KEY: ["a"], VERSION: [number], LIVE: [True], "value": value})

    assert newest(versions(1000))["value"][0].as_py() == bytes([999 % 256]) * (1 << 20)
    assert max(held) < 200 << 20
