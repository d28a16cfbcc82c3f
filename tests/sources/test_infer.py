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
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.json_lines import json_lines
from sessionlake.sources.decoding.long_lines import LongLine
from sessionlake.sources.infer import chosen_types, infer_types, scanned

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
        "o": pa.struct([("a", pa.int64())]), "later": pa.int64(),
    }  # fmt: skip
    assert list(scanned(paths, "json", frozenset())) == ["i", "f", "b", "s", "t", "x", "o", "none", "later"]


def test_csv_types_keep_leading_zeros_as_text(write: Write) -> None:
    paths = write("i,z,f,b,s,t,none\n1,007,1,true,a,2020-01-01,\n-2,008,2.5e3,False,1,2020-01-02,\n", "i,z\n")
    assert infer_types(paths, "csv", ["i", "z", "f", "b", "s", "t", "none"]) == {
        "i": pa.int64(), "z": pa.string(), "f": pa.float64(), "b": pa.bool_(), "s": pa.string(), "t": pa.string(),
    }  # fmt: skip
    assert list(scanned(paths, "csv", frozenset())) == ["i", "z", "f", "b", "s", "t", "none"]


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
    of_text = infer._text_kinds
    monkeypatch.setattr(infer, "_text_kinds", lambda values: typed.append(len(values)) or of_text(values))
    assert infer_types(paths, "csv", ["c7", "c299"]) == {"c7": pa.int64(), "c299": pa.int64()}
    assert len(typed) == 2
    assert list(scanned(paths, "csv", frozenset())) == names
    assert len(typed) == 2
    with pytest.raises(SourceError, match=r"no column 'd' in the csv files: write one of c0, c1, .*, c299$"):
        infer_types(paths, "csv", ["d"])


LONG_IDS = "id,v\n1588987262754234368,1\n1588987262754234369,2\n-9223372036854775808,3\n9223372036854775807,4\n"


def test_whole_numbers_in_text_are_long_up_to_64_bits_and_text_beyond(write: Write) -> None:
    assert infer_types(write(LONG_IDS), "csv", ["id"]) == {"id": pa.int64()}
    for beyond in ("9223372036854775808", "-9223372036854775809", "9" * 40):
        assert infer_types(write(f"{LONG_IDS}{beyond},5\n"), "csv", ["id"]) == {"id": pa.string()}
        assert infer_types(write(f'{{"id":1}}\n{{"id":{beyond}}}\n'), "json", ["id"]) == {"id": pa.string()}


@pytest.mark.parametrize("number", ["9007199254740993", "1588987262754234369", "18446744073709551615", "12e4567"])
def test_whole_numbers_that_a_double_does_not_give_back_are_never_rounded(write: Write, number: str) -> None:
    for contents in ([f"k\n{number}\n1.5\n"], [f"k\n{number}\n", "k\n1.5\n"]):
        assert infer_types(write(*contents), "csv", ["k"]) == {"k": pa.string()}
    if "e" not in number:
        assert infer_types(write(f'{{"k":{number}}}\n{{"k":1.5}}\n'), "json", ["k"]) == {"k": pa.string()}


@pytest.mark.parametrize("texts", ["1.10 1.1", "0.50 7", "1.5 1.25", "true True", "12e45 1200"])
def test_texts_that_tell_events_apart_stay_texts(write: Write, texts: str, caplog: pytest.LogCaptureFixture) -> None:
    paths = write("\n".join(["k,v", *(f"{text},{text}" for text in texts.split())]) + "\n")
    found = infer_types(paths, "csv", ["k", "v"], identity={"k"}, at="join.left.source")
    assert found == {"k": pa.string(), "v": pa.bool_() if "true" in texts else pa.float64()}
    (line,) = caplog.messages
    assert line.startswith("sessionlake: warning: join.left.source.types: 'k' is read as text, because")


def test_numbers_of_json_that_tell_events_apart_are_doubles_only_if_all_are_and_are_given_back(write: Write) -> None:
    def found(*values: str) -> pa.DataType:
        paths = write("\n".join(f'{{"k":{value}}}' for value in values))
        return infer_types(paths, "json", ["k"], identity={"k"})["k"]

    assert found("1.5", "0.30000000000000004", '"NaN"') == pa.float64()
    assert found("1.5", "0.300000000000000041") == pa.string()
    assert found("1.5", "7") == pa.string()
    assert found("7", "-0") == pa.int64()


def test_nan_in_quotes_makes_no_column_of_numbers_text(write: Write) -> None:
    paths = write(
        '{"a":1,"b":1.5,"c":"NaN","d":"x","e":9007199254740993}\n' + '{"a":"NaN","b":"-Infinity","d":"NaN","e":"NaN"}'
    )
    types = [pa.float64(), pa.float64(), pa.string(), pa.string(), pa.string()]
    assert infer_types(paths, "json", list("abcde")) == dict(zip("abcde", types, strict=True))
    assert infer_types(write("a,b,c\n1,1.5,NaN\nNaN,Infinity,\n"), "csv", list("abc")) == dict(
        zip("abc", types, strict=False)
    )


def test_parquet_ids_as_floats_beside_whole_numbers(write: Write) -> None:
    small, floats = pa.table({"k": [1, 2]}), pa.table({"k": [1.0, None]})
    large = pa.table({"k": [1588987262754234368, 1588987262754234369]})
    unsigned = pa.table({"k": pa.array([2**64 - 1], pa.uint64())})
    assert infer_types(write(small, floats), "parquet", ["k"]) == {"k": pa.float64()}
    assert infer_types(write(small, floats), "parquet", ["k"], identity={"k"}) == {"k": pa.int64()}
    assert infer_types(write(floats, large), "parquet", ["k"]) == {"k": pa.int64()}
    assert infer_types(write(floats), "parquet", ["k"], identity={"k"}) == {"k": pa.float64()}
    assert infer_types(write(unsigned, small), "parquet", ["k"]) == {"k": pa.string()}


def test_parquet_decimals_take_whole_numbers_and_times_take_dates(write: Write) -> None:
    money = pa.array([Decimal("1.25")], pa.decimal128(38, 2))
    one = pa.table({"m": money, "t": pa.array([1], pa.timestamp("us"))})
    two = pa.table({"m": [7], "t": [date(2020, 1, 1)]})
    assert infer_types(write(one, two), "parquet", ["m", "t"]) == {"m": pa.decimal128(38, 2), "t": TIMESTAMP}


@pytest.mark.parametrize("needed", [["i"], ["f", "b"], ["i", "f", "b", "s"]])
@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_one_look_at_all_columns_gives_the_types_of_some(tmp_path: Path, form: str, needed: list[str]) -> None:
    path, rows = tmp_path / f"0.{form}", {"i": [1, 2**60], "f": [1.5, 2.0], "b": [True, False], "s": ["x", "y"]}
    if form == "parquet":
        pq.write_table(pa.table(rows), path)
    elif form == "csv":
        path.write_text("i,f,b,s\n1,1.5,true,x\n1152921504606846976,2.0,false,y\n")
    else:
        path.write_text('{"i":1,"f":1.5,"b":true,"s":"x"}\n{"i":1152921504606846976,"f":2.0,"b":false,"s":"y"}\n')
    found = scanned([str(path)], form, None)  # type: ignore[arg-type]
    assert chosen_types(found, form, needed) == infer_types([str(path)], form, needed)  # type: ignore[arg-type]


def test_a_line_without_an_end_is_read_so_far(tmp_path: Path) -> None:
    path = tmp_path / "0.json"
    path.write_bytes(b"x" * 100_000)
    (line,) = json_lines(str(path), str(path), 1000, 100, most_blocks=3)
    assert isinstance(line, LongLine)
    assert line.length == 3000


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_the_first_rows_come_in_small_parts(tmp_path: Path, form: str) -> None:
    path, columns = (
        str(tmp_path / f"0.{form}"),
        EventColumns("k", "t", None, None, (), {"k": pa.string(), "t": TIMESTAMP}),
    )
    rows = 100_000
    if form == "parquet":
        pq.write_table(pa.table({"k": ["ann"] * rows}), path)
    else:
        line = '{"k": "ann", "u": 1}\n' if form == "json" else "ann,1\n"
        Path(path).write_text(("k,u\n" if form == "csv" else "") + line * rows)
    parts = [part.table for part in decode(path, path, form, columns, few=True)]  # type: ignore[arg-type]
    assert parts[0].num_rows < rows / 2
    assert pa.concat_tables(parts).equals(pa.concat_tables([part.table for part in decode(path, path, form, columns)]))  # type: ignore[arg-type]
