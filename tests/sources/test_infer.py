from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sessionlake.errors import SourceError
from sessionlake.sources import infer
from sessionlake.sources.columns import TIMESTAMP, EventColumns
from sessionlake.sources.infer import all_columns, infer_types

Write = Callable[..., list[str]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(*contents: str | bytes | pa.Table) -> list[str]:
        paths = []
        for number, content in enumerate(contents):
            path = tmp_path / f"{number}"
            if isinstance(content, pa.Table):
                pq.write_table(content, path)
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
            paths.append(str(path))
        return paths

    return make


def test_json_types_and_promotions_across_lines_and_files(write: Write) -> None:
    paths = write(
        '{"i":1,"f":1,"b":true,"s":"a","t":"2020-01-01T00:00:00Z","x":1,"o":{"a":1},"none":null}\nbad\n{"later":1}',
        '{"i":2,"f":1.5,"b":false,"x":"a","none":null}',
    )
    needed = ["i", "f", "b", "s", "t", "x", "o", "later", "none"]
    assert infer_types(paths, "json", needed) == {
        "i": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "s": pa.string(), "t": pa.string(), "x": pa.string(),
        "o": pa.string(), "later": pa.int64(),
    }  # fmt: skip
    assert all_columns(paths, "json") == ["i", "f", "b", "s", "t", "x", "o", "none", "later"]


def test_csv_types_keep_leading_zeros_as_text(write: Write) -> None:
    paths = write("i,z,f,b,s,t,none\n1,007,1,true,a,2020-01-01,\n-2,008,2.5e3,False,1,2020-01-02,\n", "i,z\n")
    assert infer_types(paths, "csv", ["i", "z", "f", "b", "s", "t", "none"]) == {
        "i": pa.int64(), "z": pa.string(), "f": pa.float64(), "b": pa.bool_(), "s": pa.string(), "t": pa.string(),
    }  # fmt: skip
    assert all_columns(paths, "csv") == ["i", "z", "f", "b", "s", "t", "none"]


def test_csv_with_two_columns_of_one_name_takes_the_first(write: Write) -> None:
    assert infer_types(write("a,a\n1,x\n"), "csv", ["a"]) == {"a": pa.int64()}


def test_parquet_types(write: Write) -> None:
    one = pa.table(
        {
            "i": pa.array([1], pa.int16()), "f": pa.array([1], pa.float32()), "s": pa.array(["a"]).dictionary_encode(),
            "t": pa.array([1], pa.timestamp("ns")), "d": [date(2020, 1, 1)],
            "m": pa.array([Decimal("1.2")], pa.decimal128(4, 1)),
            "none": pa.nulls(1),
        }
    )  # fmt: skip
    two = pa.table({"i": [1.5], "m": pa.array([Decimal("1.25")], pa.decimal128(5, 2)), "d": ["x"]})
    assert infer_types(write(one, two), "parquet", ["i", "f", "s", "t", "d", "m", "none"]) == {
        "i": pa.float64(), "f": pa.float64(), "s": pa.string(), "t": TIMESTAMP, "d": pa.string(),
        "m": pa.decimal128(5, 2),
    }  # fmt: skip


def test_column_in_no_file_names_those_that_exist(write: Write) -> None:
    with pytest.raises(SourceError, match=r"^no column 'user' in the json files: write one of a, b$"):
        infer_types(write('{"a":1}', '{"b":1}'), "json", ["a", "user"])


def test_unreadable_file_is_passed_over_and_only_all_of_them_raise(write: Write) -> None:
    good = pa.table({"a": [1]})
    assert infer_types(write("x", good), "parquet", ["a"]) == {"a": pa.int64()}
    for file_format in ("parquet", "json"):
        with pytest.raises(SourceError, match=rf"^no readable {file_format} file \(.*\): check the source's path"):
            infer_types(write("x"), file_format, ["a"])
    with pytest.raises(SourceError, match=r"^no readable json file \(there are no files\): check"):
        infer_types([], "json", ["a"])


def test_at_most_max_files_are_read_spread_over_all(write: Write) -> None:
    paths = write(*(f'{{"c{number}":1}}' for number in range(5)))
    assert list(infer_types(paths, "json", [], max_files=2)) == []
    with pytest.raises(SourceError, match=r"write one of c0, c3$"):
        infer_types(paths, "json", ["x"], max_files=2)


def test_needed_columns_are_listed_once_in_order() -> None:
    columns = EventColumns("k", "t", None, "k", ("n", "t", "m"), dict.fromkeys("ktnm", pa.string()))
    assert columns.needed == ("k", "t", "n", "m")


def test_unit_and_types_of_columns_are_checked() -> None:
    with pytest.raises(ValueError, match="time_unit 'min': write one of s, ms, us, ns"):
        EventColumns("k", "t", "min", None, (), {})
    with pytest.raises(ValueError, match="no type for column t, n: add it to types"):
        EventColumns("k", "t", None, None, ("n",), {"k": pa.string()})


def test_of_a_wide_csv_the_needed_columns_alone_are_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{n}" for n in range(300)]
    paths = write("\n".join([",".join(names), ",".join(map(str, range(300)))]))
    typed: list[int] = []
    of_text = infer._text_type
    monkeypatch.setattr(infer, "_text_type", lambda values: typed.append(len(values)) or of_text(values))
    assert infer_types(paths, "csv", ["c7", "c299"]) == {"c7": pa.int64(), "c299": pa.int64()}
    assert len(typed) == 2
    assert all_columns(paths, "csv") == names
    assert len(typed) == 2
    with pytest.raises(SourceError, match=r"no column 'd' in the csv files: write one of c0, c1, .*, c299$"):
        infer_types(paths, "csv", ["d"])
