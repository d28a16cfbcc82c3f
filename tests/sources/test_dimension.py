"""A version of a table that is looked up: beside a plain model, and beside DuckDB's ASOF JOIN."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.equality import key_of
from sessionlake.columnar.identity import record_ids
from sessionlake.sources.lookups import dimension
from sessionlake.sources.lookups.dimension import FROM, HASH, KEY, UNTIL, BadVersionError, Dimension, mapped
from tests.columnar.colliding import twins
from tests.support import examples

KEYS = st.sampled_from(["a", "b", "c", "", "a\0", "ä"])
TIMES = st.one_of(st.none(), st.integers(0, 12))
ASKED = st.lists(st.tuples(st.one_of(st.none(), KEYS, st.just("z")), st.integers(-2, 14)), max_size=20)


def found(version: Dimension, keys: pa.Array, times: np.ndarray | None = None) -> list[int | None]:
    return version.take(version.find(keys, times), {"row": "v"})["row"].to_pylist()


def version_of(rows: Mapping[tuple[str | None, int | None], int | None]) -> Dimension:
    """Return a version whose rows, numbered in `v`, are valid from and until some times."""
    keys, begins = zip(*rows, strict=True) if rows else ((), ())
    columns = {
        KEY: pa.array(keys, pa.string()),
        FROM: pa.array(begins, pa.int64()),
        UNTIL: pa.array(rows.values(), pa.int64()),
        "v": pa.array(range(len(rows))),
    }
    return Dimension.of(pa.table(columns), 100)


@examples(400)
@given(st.dictionaries(st.tuples(KEYS, TIMES), TIMES, max_size=12), ASKED)
def test_the_row_that_is_valid_and_begins_last(
    rows: dict[tuple[str, int | None], int | None], asked: list[tuple[str | None, int]]
) -> None:
    expected = []
    for key, time in asked:
        valid = [
            (-1 if begin is None else begin, row)
            for row, ((of, begin), end) in enumerate(rows.items())
            if of == key and (begin is None or begin <= time) and (end is None or time < end)
        ]
        expected.append(max(valid)[1] if valid else None)
    keys = pa.array([key for key, _ in asked], pa.string())
    times = np.array([time for _, time in asked], np.int64)
    version = version_of(rows)
    assert found(version, keys, times) == expected
    assert found(version, keys.dictionary_encode(), times) == expected


@examples(60)
@given(st.dictionaries(st.tuples(KEYS, st.integers(0, 12)), st.none(), min_size=1, max_size=12), ASKED)
def test_without_an_end_as_duckdb_joins(rows: dict[tuple[str, int], None], asked: list[tuple[str | None, int]]) -> None:
    table = pa.table(
        {
            "k": pa.array([key for key, _ in rows]),
            "since": pa.array([begin for _, begin in rows]),
            "v": pa.array(range(len(rows))),
        }
    )
    events = pa.table(
        {
            "n": pa.array(range(len(asked)), pa.int64()),
            "key": pa.array([key for key, _ in asked], pa.string()),
            "t": pa.array([time for _, time in asked], pa.int64()),
        }
    )
    with duckdb.connect() as database:
        database.register("dims", table)
        database.register("events", events)
        joined = database.execute(
            "select v from events asof left join dims on events.key = dims.k and events.t >= dims.since order by n"
        ).fetchall()
    columns = {KEY: table["k"], FROM: table["since"], "v": table["v"]}
    version = Dimension.of(pa.table(columns), 100)
    keys, times = events["key"].combine_chunks(), events["t"].to_numpy()
    assert found(version, keys, times) == [row for (row,) in joined]


@examples(100)
@given(st.dictionaries(st.one_of(st.none(), KEYS), st.none(), max_size=6), st.lists(st.one_of(st.none(), KEYS)))
def test_one_row_a_key(rows: dict[str | None, None], asked: list[str | None]) -> None:
    table = pa.table({KEY: pa.array(list(rows), pa.string()), "v": pa.array(range(len(rows)))})
    places = {key: row for row, key in enumerate(rows) if key is not None}
    assert found(Dimension.of(table, 100), pa.array(asked, pa.string())) == [places.get(key) for key in asked]


@pytest.mark.parametrize("keys", [("customer-0001234", "MGTcUM2ngTSvg7c0"), twins()])
def test_keys_that_somebody_chose_to_have_one_hash_are_told_apart(keys: tuple[str, str]) -> None:
    """The first two have one XXH64 under Spark's seed, the others under every seed."""
    version = Dimension.of(pa.table({KEY: [*keys, "else"], "v": [0, 1, 2]}), 100)
    assert found(version, pa.array([keys[1], "x", keys[0]])) == [1, None, 0]


def test_keys_of_equal_hashes_are_told_apart_under_another_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    real, used = dimension.keyed_hashes, []

    def poor(keys: pa.Array, secret: bytes) -> Any:
        used.append(secret)
        return real(keys, secret) % 3 if secret == used[0] else real(keys, secret)

    monkeypatch.setattr(dimension, "keyed_hashes", poor)
    keys = pa.array(list("abcdefgh"))
    version = Dimension.of(pa.table({KEY: keys, "v": pa.array(range(8))}), 100)
    assert found(version, pa.array(["h", "x", "a"])) == [7, None, 0]
    assert len(set(used)) == 2


def test_keys_of_equal_hashes_under_all_secrets_refuse_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dimension, "keyed_hashes", lambda keys, _: pc.binary_length(keys).to_numpy().astype(np.uint64))
    keys = pa.array([None, "a", "bbb", "cc", "dd"])
    with pytest.raises(
        BadVersionError,
        match=r"^has keys whose hashes are equal under 4 secrets, one of them in row [34] of those with a key$",
    ):
        Dimension.of(pa.table({KEY: keys, "v": pa.array(range(5))}), 100)


def test_version_of_a_release_without_secrets_is_read() -> None:
    keys = pa.array([f"k{number}" for number in range(50)])
    hashes = record_ids(keys, np.full(50, 1)).view(np.uint64)
    table = pa.table({KEY: keys, "v": pa.array(range(50)), HASH: pa.array(hashes)}).take(pa.array(np.argsort(hashes)))
    version = Dimension(table.replace_schema_metadata({"salt": "1"}))
    assert found(version, pa.array(["k7", "none", "k49"])) == [7, None, 49]


def test_a_file_of_several_batches_is_found_in_as_the_table_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dimension, "_BATCH_ROWS", 3)
    keys = pa.array([f"k{number}" for number in range(10)])
    version = Dimension.of(pa.table({KEY: keys, "v": pa.array(range(10)), "text": keys}), 10)
    path = str(tmp_path / "v.arrow")
    with pa.OSFile(path, "wb") as sink:
        version.write(sink)
    again = mapped(path)
    assert again.table.column("v").num_chunks == 4
    asked = pa.array(["k7", "none", None, "k0", "k7"])
    assert found(again, asked) == found(version, asked) == [7, None, None, 0, 7]
    texts = again.take(again.find(asked), {"t": "text"})["t"]
    assert texts.to_pylist() == ["k7", None, None, "k0", "k7"]


def test_a_version_without_rows(tmp_path: Path) -> None:
    version = Dimension.of(pa.table({KEY: pa.array([], pa.string()), "v": pa.array([], pa.int64())}), 10)
    path = str(tmp_path / "v.arrow")
    with pa.OSFile(path, "wb") as sink:
        version.write(sink)
    assert found(mapped(path), pa.array(["a", None])) == [None, None]


def test_a_file_that_is_made_again_is_mapped_again(tmp_path: Path) -> None:
    path, again = (str(tmp_path / name) for name in ("v.arrow", "again"))
    for number, name in enumerate((path, again)):
        with pa.OSFile(name, "wb") as sink:
            Dimension.of(pa.table({KEY: ["a"], "v": [number]}), 10).write(sink)
    assert found(mapped(path), pa.array(["a"])) == [0]
    Path(again).replace(path)
    assert found(mapped(path), pa.array(["a"])) == [1]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({KEY: ["a", "b", "a", "a"]}, "has 2 rows with the key of another row"),
        ({KEY: ["a", "a"], FROM: [5, 5]}, "has 1 row with key and valid_from of another row"),
        ({KEY: list("abcdef")}, "has 6 rows, and max_rows is 5"),
    ],
)
def test_a_version_that_must_not_be_used(columns: dict[str, list[str]], told: str) -> None:
    with pytest.raises(BadVersionError, match=rf"^{told}$"):
        Dimension.of(pa.table(columns), 5)


def test_keys_of_several_columns_are_arrays_of_their_texts() -> None:
    found = key_of([pa.array(["x", None, "z"]), pa.array([1, 2, None])])
    assert found.to_pylist() == ['["x","1"]', None, None]
