import bz2
import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessionlake.errors import SourceError
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.json_lines import decode_json
from tests.sources.decoding.common import COLUMNS, MONEY, WIDE, errors, outcome
from tests.support import examples

GOOD = b'{"k":"a","t":"x","n":1}'
GOOD_VALUES = ("a", "x", 1)
NULLS = (None, None, None)


def run(content: bytes, columns: EventColumns = COLUMNS) -> list:
    return outcome(list(decode(content, "f.json", "json", columns)))


def beside_good(line: bytes) -> tuple:
    """Decode a line between two good ones, which must stay good; also alone, for the same outcome."""
    before, row, after = run(GOOD + b"\n" + line + b"\n" + GOOD + b"\n")
    assert before == (GOOD_VALUES, None, GOOD.decode(), "f.json:1")
    assert after == (GOOD_VALUES, None, GOOD.decode(), "f.json:3")
    ((values, error, raw, _),) = run(line)
    assert (values, error, raw) == row[:3]
    many = run((GOOD + b"\n") * 5000 + line + b"\n" + (GOOD + b"\n") * 5000)
    assert many[5000] == (values, error, raw, "f.json:5001")
    assert [one[1] for one in many[:5000] + many[5001:]] == [None] * 10000
    return row[:2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"null", "not an object"),
        (b"1", "not an object"),
        (b'"a"', "not an object"),
        (b'[{"k":"a"}]', "not an object"),
        (b'{"k":"a"} null', "Extra data: line 1 column 11 (char 10)"),
        (b'{"k":"a"} null {"k":"b"}', "Extra data: line 1 column 11 (char 10)"),
        (b'{"k":"a"}{"k":"b"}', "Extra data: line 1 column 10 (char 9)"),
        (b'{"k":"a"}\r{"k":"b"}', "Extra data: line 1 column 11 (char 10)"),
        (b'{"k":"a"},', "Extra data: line 1 column 10 (char 9)"),
        (b'{"k":"a"} x', "Extra data: line 1 column 11 (char 10)"),
        (b'{"k":"a"', "Expecting ',' delimiter: line 1 column 9 (char 8)"),
        (b'{"k":"a",}', "Expecting property name enclosed in double quotes: line 1 column 10 (char 9)"),
        (b'{"k":"a"}\x00', "Extra data: line 1 column 10 (char 9)"),
        (b'{"k":"a","k":"b"}', "column k is given twice"),
        (b'{"k":"a\x01"}', "Invalid control character at: line 1 column 8 (char 7)"),
        (b'{"k":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"other":"\xff"}', "not UTF-8 at byte 10"),
        (b'\xef\xbb\xbf{"k":"a"}', "Unexpected UTF-8 BOM"),
        (b"garbage", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_line_that_is_not_one_json_object_is_bad_json(line: bytes, message: str) -> None:
    if line.startswith(b"\xef\xbb\xbf"):
        rows = run(GOOD + b"\n" + line + b"\n" + GOOD)
        assert [row[1] is None for row in rows] == [True, False, True]
        return
    assert beside_good(line) == (NULLS, f"bad JSON: {message}")


@pytest.mark.parametrize(
    ("line", "values", "reason"),
    [
        (b'{"k":true,"t":"x","n":1}', (None, "x", 1), "k = true is not a string"),
        (b'{"k":{"z":1},"t":"x","n":1}', (None, "x", 1), 'k = {"z": 1} is not a string'),
        (b'{"k":"a","t":"x","n":"abc"}', ("a", "x", None), "n = 'abc' is not a long"),
        (b'{"k":"a","t":"x","n":1.5}', ("a", "x", None), "n = 1.5 is not a long"),
        (b'{"k":"a","t":"x","n":true}', ("a", "x", None), "n = true is not a long"),
        (b'{"k":"a","t":"x","n":9223372036854775808}', ("a", "x", None), "n = 9223372036854775808 is not a long"),
        (b'{"k":"a","t":"x","n":1e999999}', ("a", "x", None), "n = 1e999999 is not a long"),
        (b'{"k":"a","t":5,"n":"abc"}', ("a", "5", None), "n = 'abc' is not a long"),
        (b'{"k":NaN,"t":"x","n":1}', (None, "x", 1), "k = NaN is not a string"),
        (b'{"k":"\\ud800","t":"x","n":1}', (None, "x", 1), "k = '\\ud800' is not a string"),
    ],
)
def test_value_of_wrong_type_is_null_and_the_rest_of_its_row_stays(line: bytes, values: tuple, reason: str) -> None:
    assert beside_good(line) == (values, f"wrong type: {reason}")


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (b"{}", NULLS),
        (b'{"k":null}', NULLS),
        (b'{"k":"a","n":9223372036854775807}', ("a", None, 2**63 - 1)),
        (b'{"k":"a","n":-9223372036854775808}', ("a", None, -(2**63))),
        (b'{"k":"a","n":1.0}', ("a", None, 1)),
        (b'{"k":"a","n":1e3}', ("a", None, 1000)),
        (b'{"k":"a","z":1,"z":[null]}', ("a", None, None)),
        (b'{"k":"a","z":{"k":1,"k":2}}', ("a", None, None)),
        (b'{"k":"a","z":-NaN}', ("a", None, None)),
        (b'{"k":"a","z":' + b"[" * 5000 + b"]" * 5000 + b"}", ("a", None, None)),
        ('{"k":"ä\\u0000"}'.encode(), ("ä\0", None, None)),
        (b'{"k":1,"t":"x","n":1}', ("1", "x", 1)),
        (b'{"k":18446744073709551615,"t" : 1.10 ,"n":1}', ("18446744073709551615", "1.10", 1)),
        (b'{"k":-0,"t":12e4567,"n":-0}', ("-0", "12e4567", 0)),
        (b'{"k":"\\"k\\":1","t":1E+5}', ('"k":1', "1E+5", None)),
        (b'{"z":{"k":1,"z":"t"},"k":-1.0e-5}', ("-1.0e-5", None, None)),
    ],
)
def test_good_line_is_good_beside_any_other(line: bytes, values: tuple) -> None:
    assert beside_good(line) == (values, None)
    rows = run(line + b"\nnull\n" + line)
    assert [row[:2] for row in rows] == [(values, None), (NULLS, "bad JSON: not an object"), (values, None)]


def test_every_pinned_type() -> None:
    good = b'{"k":"a","t":"2020-01-01T00:00:00+01:00","i":"1","n":1,"f":2,"b":true,"d":"2020-01-02","m":1.25}'
    values = ("a", datetime(2019, 12, 31, 23, tzinfo=UTC), "1", 1, 2.0, True, date(2020, 1, 2), MONEY)
    bad = b'{"k":"b","t":"x","d":3,"f":"1","b":1,"m":"x"}'
    rows = run(good + b"\n" + bad + b"\n" + good.replace(b"1.25", b'"1.25"'), WIDE)
    assert [row[0] for row in rows] == [values, ("b", *[None] * 7), values]
    assert [row[1] for row in rows] == [None, "wrong type: f = '1' is not a double", None]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b'"f":1e400', "wrong type: f = 1e400 is not a double"),
        (b'"m":1.257', "wrong type: m = 1.257 is not a decimal(10, 2)"),
        (b'"m":123456789.5', "wrong type: m = 123456789.50 is not a decimal(10, 2)"),
        (b'"t":"x"', "wrong type: t = 'x' is not a timestamp"),
        (b'"t":1577836800', "wrong type: t = 1577836800 is not a timestamp"),
        (b'"d":"2020-02-30"', "wrong type: d = '2020-02-30' is not a date"),
        (b'"d":18000', "wrong type: d = 18000 is not a date"),
        (b'"b":"true"', "wrong type: b = 'true' is not a boolean"),
    ],
)
def test_value_beyond_its_type(text: bytes, error: str) -> None:
    assert [row[1] for row in run(b"{}\n{" + text + b"}\n{}", WIDE)] == [None, error, None]


def test_line_numbers_count_blank_lines_and_crlf_is_no_text() -> None:
    assert run(b'\r\n \t\r\n{"k":"a"}\r\n\n' + b" " * 40 + b'{"k":"b"} \r\nnull\r\n') == [
        (("a", None, None), None, '{"k":"a"}', "f.json:3"),
        (("b", None, None), None, '{"k":"b"}', "f.json:5"),
        (NULLS, "bad JSON: not an object", "null", "f.json:6"),
    ]


def test_object_over_two_lines_beside_two_objects_on_one_keeps_rows_on_lines() -> None:
    rows = run(b'{"k":"a"}{"k":"b"}\n{"k":\n"c"}\n{"k":"d"}')
    assert [(row[0][0], row[1] is None, row[3]) for row in rows] == [
        (None, False, "f.json:1"),
        (None, False, "f.json:2"),
        (None, False, "f.json:3"),
        ("d", True, "f.json:4"),
    ]


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\n", b"\xef\xbb\xbf"])
def test_file_without_lines_has_no_rows(content: bytes) -> None:
    assert run(content) == []


def test_byte_order_mark_at_the_start_is_skipped() -> None:
    assert run(b"\xef\xbb\xbf" + GOOD) == [(GOOD_VALUES, None, GOOD.decode(), "f.json:1")]


def test_raw_replaces_what_is_not_utf8() -> None:
    assert run(b'{"k":"\xff"}')[0][2] == '{"k":"\ufffd"}'


@pytest.mark.parametrize(("suffix", "compress"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_path_and_content_decode_alike_whatever_the_compression(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"f.json{suffix}"
    path.write_bytes(compress(GOOD + b"\nnull\n"))
    expected = [
        (GOOD_VALUES, None, GOOD.decode(), f"{path}:1"),
        (NULLS, "bad JSON: not an object", "null", f"{path}:2"),
    ]
    assert outcome(list(decode(str(path), str(path), "json", COLUMNS))) == expected
    assert outcome(list(decode(path.read_bytes(), str(path), "json", COLUMNS))) == expected


def test_truncated_gzip_gives_its_whole_lines_then_one_error_row() -> None:
    lines = [b'{"k":"%d"}' % number for number in random.Random(1).sample(range(10**9), 100_000)]
    whole = gzip.compress(b"\n".join(lines))
    *rows, last = run_gz(whole[: len(whole) // 2])
    assert last == (NULLS, "unreadable file: Truncated compressed stream", None, "f.json.gz")
    assert len(rows) > 20_000
    assert [row[2] for row in rows] == [line.decode() for line in lines[: len(rows)]]
    assert {row[1] for row in rows} == {None}


def test_content_that_is_not_gzip_is_one_error_row() -> None:
    (row,) = run_gz(GOOD)
    assert row == (NULLS, "unreadable file: zlib inflate failed: incorrect header check", None, "f.json.gz")


def run_gz(content: bytes) -> list:
    return outcome(list(decode(content, "f.json.gz", "json", COLUMNS)))


def test_missing_path_raises() -> None:
    with pytest.raises(SourceError, match=r"can't open '/none\.json': it doesn't exist"):
        list(decode("/none.json", "/none.json", "json", COLUMNS))


def test_parts_are_at_most_250_000_rows() -> None:
    parts = list(decode(b"{}\n" * 600_000, "f.json", "json", COLUMNS))
    assert [len(part.table) for part in parts] == [250_000, 250_000, 100_000]
    assert parts[2].position([99_999]).to_pylist() == ["f.json:600000"]


JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
GOOD_OBJECT = st.fixed_dictionaries(
    {},
    optional={
        "k": st.none() | st.text(max_size=5),
        "t": st.none() | st.text(max_size=5),
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "z": JSON_VALUE,
    },
)
OBJECT = st.dictionaries(st.sampled_from(["k", "t", "n", "z"]), JSON_VALUE, max_size=4)
JSON_LINE = st.builds(
    lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass"),
    GOOD_OBJECT | OBJECT | JSON_VALUE,
    st.booleans(),
)
GARBAGE = st.one_of(
    st.builds(lambda line, cut: line[:cut], JSON_LINE, st.integers(0, 20)),
    st.builds(lambda one, gap, two: one + gap + two, JSON_LINE, st.sampled_from([b"", b" ", b",", b"\r"]), JSON_LINE),
    st.builds(
        lambda line, at, byte: line[:at] + byte + line[at:], JSON_LINE, st.integers(0, 20), st.binary(max_size=1)
    ),
)
LINES = st.lists(JSON_LINE | GARBAGE | st.sampled_from([b"", b" ", GOOD]), max_size=30)


@dataclass
class Number:
    text: str


def expected_rows(content: bytes) -> list[tuple[str, bool, tuple | None]]:
    """Tell of each line its number, whether it is good, and its values when it is, by json.loads alone."""
    found = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip(b" \t\r"):
            continue
        try:
            value = json.loads(line.decode(), parse_float=Number, parse_int=Number)
            good = isinstance(value, dict)
        except ValueError:
            good = False
        values = None
        if good:
            texts = [one.text if isinstance(one := value.get(name), Number) else one for name in ("k", "t")]
            whole = value.get("n")
            whole = Decimal(whole.text) if isinstance(whole, Number) else whole
            good = all(text is None or (isinstance(text, str) and encodable(text)) for text in texts) and (
                whole is None or (isinstance(whole, Decimal) and abs(whole) < 2**64 and whole == int(whole))
            )
            good = good and (whole is None or -(2**63) <= int(whole) < 2**63)
            values = (*texts, None if whole is None else int(whole)) if good else None
        found.append((f"f.json:{number}", good, values))
    return found


def encodable(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


@examples(400)
@given(LINES, st.integers(0, 60), st.sampled_from([1, 40, 1 << 20]))
@example([b'{"n": 3.471612799849413e+16}'], 0, 40)
def test_exactly_the_bad_lines_are_flagged_in_order(lines: list[bytes], padding: int, block_bytes: int) -> None:
    lines = [line for line in lines if b'"k":' not in line[line.find(b'"k":') + 1 :]]
    content = b"\n".join([GOOD] * padding + lines)
    if content.startswith(b"\xef\xbb\xbf"):
        return
    rows = outcome(list(decode_json(content, "f.json", COLUMNS, block_bytes)))
    got = [(position, error is None, values if error is None else None) for values, error, _, position in rows]
    assert got == expected_rows(content)


def test_shipped_commits_are_all_good() -> None:
    kinds = dict.fromkeys(("author", "authored_at", "event_id", "repo", "top", "ext"), pa.string())
    kinds |= {"added": pa.int64(), "deleted": pa.int64()}
    columns = EventColumns("author", "authored_at", None, "event_id", ("added", "deleted", "repo", "top", "ext"), kinds)
    rows = 0
    for path in sorted((Path(__file__).parents[3] / "src/sessionlake/examples/commits").glob("*.json.gz")):
        with gzip.open(path) as file:
            objects = [json.loads(line) for line in file]
        for part in decode(str(path), str(path), "json", columns):
            assert part.error.null_count == len(part.error)
            assert part.table.to_pylist() == [{name: one[name] for name in columns.needed} for one in objects]
            rows += len(part.table)
    assert rows == 62_726


def test_errors_of_a_wholly_wrong_column() -> None:
    parts = list(decode(b'{"n":"x"}\n' * 10_000, "f.json", "json", COLUMNS))
    assert errors(parts) == ["wrong type: n = 'x' is not a long"] * 10_000


@pytest.mark.parametrize("bad", [b"", b"{\n", b'{"n":"x"}\n'])
@pytest.mark.parametrize("more", [b"", b',"z":[]'])
def test_minus_zero_is_the_same_double_beside_any_other_line(bad: bytes, more: bytes) -> None:
    columns = EventColumns("k", None, None, None, ("n",), {"k": pa.float64(), "n": pa.int64()})
    for times in (20, 5000):
        rows = run((b'{"k":-0' + more + b"}\n") * times + bad, columns)
        assert {str(row[0][0]) for row in rows[:times]} == {"-0.0"}


@pytest.mark.parametrize("bad", [b"", b"{\n"])
def test_nan_and_infinities_in_quotes_are_doubles_and_nothing_else_in_quotes_is(bad: bytes) -> None:
    columns = EventColumns("k", None, None, None, ("f",), {"k": pa.string(), "f": pa.float64()})
    lines = [b"1.5", b'"NaN"', b'"Infinity"', b'"-Infinity"', b'"1.5"', b'"nan"']
    rows = run(b"".join(b'{"k":"NaN","f":' + value + b"}\n" for value in lines) * 100 + bad, columns)[:600]
    assert [(row[0][0], str(row[0][1])) for row in rows] == [
        ("NaN", text) for text in ("1.5", "nan", "inf", "-inf", "None", "None")
    ] * 100
    assert [row[1] for row in rows[4:6]] == [
        "wrong type: f = '1.5' is not a double",
        "wrong type: f = 'nan' is not a double",
    ]


NUMBER = st.from_regex(r"\A-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?\Z")


@examples(100)
@given(st.lists(NUMBER, min_size=1, max_size=20), st.sampled_from(['"k"', '"\\u006b"']), st.sampled_from(["", "{\n"]))
def test_a_column_of_text_has_numbers_as_they_are_written(numbers: list[str], name: str, bad: str) -> None:
    lines = "".join(f'{{"z":{{"k":1}},{name} : {number} ,"t":"{number}"}}\n' for number in numbers)
    rows = run((lines + bad).encode())[: len(numbers)]
    assert [row[:2] for row in rows] == [((number, number, None), None) for number in numbers]
