"""Lines of text by a pattern: against Python's own regular expressions."""

import gzip
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.layouts import Layout
from sessionlake.config.presets import PRESETS
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.again import file_again, layout_again
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.pieces import Piece, parts_of
from sessionlake.sources.decoding.text_rows import columns_of
from tests.sources.decoding.common import outcome
from tests.support import examples

TEXT = pa.string()
MATCH, UTF8 = "bad text: does not match the pattern", "bad text: not UTF-8"


def run(content: bytes, pattern: str, comment: str = "", limit: int = 1 << 20, **types: pa.DataType) -> list:
    names = columns_of(pattern)
    columns = EventColumns(names[0], None, None, None, names[1:], {**dict.fromkeys(names, TEXT), **types})
    return outcome(list(decode(content, "f.log", Layout("text", pattern=pattern, comment=comment), columns, limit)))


def test_a_pattern_matches_anywhere_and_each_line_is_a_row() -> None:
    assert run(b"at 7 ann!\n\n  \r\nbob\r\nx 8 cy\n", r"(?P<n>\d+) (?P<who>\w+)", n=pa.int64()) == [
        ((7, "ann"), None, "at 7 ann!", "f.log:1"),
        ((None, None), MATCH, "  ", "f.log:3"),
        ((None, None), MATCH, "bob", "f.log:4"),
        ((8, "cy"), None, "x 8 cy", "f.log:5"),
    ]


def test_a_group_without_a_match_is_null_and_an_empty_one_is_empty() -> None:
    rows = run(b"a\nab\nc\n", r"^(?P<x>a)?(?P<y>b*)(?P<z>c)?$")
    assert [row[0] for row in rows] == [("a", "", None), ("a", "b", None), (None, "", "c")]


def test_a_wrong_type_a_long_line_and_bytes_outside_of_utf8_are_rows_with_a_reason() -> None:
    content = b"a 1\nb x\n\xff 2\n" + b"y" * 40 + b" 3\nc 4\n"
    rows = run(content, r"^(?P<k>\S+) (?P<n>\S+)$", limit=32, n=pa.int64())
    assert [(row[0], row[1], row[3]) for row in rows] == [
        (("a", 1), None, "f.log:1"),
        (("b", None), "wrong type: n = 'x' is not a long", "f.log:2"),
        ((None, None), UTF8, "f.log:3"),
        ((None, None), "line too long: 42 bytes, source.max_line_bytes is 32", "f.log:4"),
        (("c", 4), None, "f.log:5"),
    ]


def test_comments_are_no_rows() -> None:
    rows = run(b"#a\n# " + b"x" * 100 + b"\nb\n#", r"(?P<k>.+)", comment="#", limit=32)
    assert rows == [(("b",), None, "b", "f.log:3")]


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("a(", "is no regular expression of RE2: missing ): a("),
        (r"(?P<a>x)(?=y)", "is no regular expression of RE2: invalid perl operator: (?="),
        ("abc", "has no named group; write (?P<name>..)"),
        ("(?P<a>x)(y)", "has a group without a name; write (?P<name>..) for a column, (?:..) for no column"),
        ("(?P<a>x)(?P<a>y)", "has two groups 'a'; name each column once"),
    ],
)
def test_a_pattern_that_is_none_is_refused_in_words(pattern: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        columns_of(pattern)


def test_a_pattern_that_backtracks_elsewhere_takes_the_time_of_its_line() -> None:
    assert [row[1] for row in run(b"a" * 100_000 + b"b\n", r"^(?P<k>(?:a+)+)$")] == [MATCH]


LINES = st.lists(st.text(st.sampled_from("ab1 -\t\r#"), max_size=8), max_size=12)


@examples(300)
@given(LINES, st.sampled_from([r"^(?P<x>a+)?(?P<y>[b1]*)(?: (?P<z>.*))?$", r"(?P<x>a)(?P<y>b)?", r"(?P<x>\d|-)$"]))
def test_rows_are_those_of_pythons_expressions(lines: list[str], pattern: str) -> None:
    rows = run("".join(f"{line}\n" for line in lines).encode(), pattern)
    expected = []
    for number, line in enumerate(lines, 1):
        bare = line.removesuffix("\r")
        found = re.search(pattern.replace("$", r"\Z"), bare)
        nothing = (None,) * len(columns_of(pattern))
        if bare:
            values = nothing if found is None else found.groups()
            expected.append((values, None if found else MATCH, bare, f"f.log:{number}"))
    assert rows == expected
    again = layout_again(Layout("text", pattern=pattern, comment="#"))
    assert again is not None
    readable, file = file_again([row[2] for row in rows], again)
    assert readable == list(range(len(rows)))
    columns = EventColumns("x", None, None, None, columns_of(pattern)[1:], dict.fromkeys(columns_of(pattern), TEXT))
    assert [row[:3] for row in outcome(list(decode(file, "f", again, columns)))] == [row[:3] for row in rows]


def test_parts_of_a_file_have_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(b"%d x\n" % number for number in range(1_200_000)))
    layout = Layout("text", pattern=r"^(?P<n>\d+) x$")
    columns = EventColumns("n", None, None, None, (), {"n": pa.int64()})
    parts = parts_of(str(path), path.stat().st_size, layout, 3)
    assert parts == 2
    pieces = [decode(str(path), str(path), layout, columns, piece=Piece(number, parts)) for number in range(parts)]
    found = np.concatenate([part.table["n"].to_numpy() for piece in pieces for part in piece])
    assert np.array_equal(found, np.arange(1_200_000))
    last = list(decode(str(path), str(path), layout, columns, piece=Piece(1, 2)))[-1]
    assert last.position(np.array([0]))[0].as_py() == f"{path}:{last.table['n'][0].as_py() + 1}"


def test_whole_rows_have_all_groups() -> None:
    layout = Layout("text", pattern=r"^(?P<k>\S+) (?P<n>\d+)(?: (?P<more>.*))?$")
    columns = EventColumns("k", None, None, None, (), {"k": TEXT}, whole=True)
    (part,) = decode(gzip.compress(b"a 1\nb 2 c\n"), "f.log.gz", layout, columns)
    assert part.whole is not None
    assert part.whole(np.array([1]))["raw"].to_pylist() == ['{"k":"b","n":"2","more":"c"}']


NGINX = (
    '203.0.113.7 - ann [29/Nov/2026:05:01:03 +0100] "GET /a?b=c HTTP/1.1" 200 123 "http://x/" "Mozilla/5.0"',
    '::1 - - [29/Nov/2026:05:01:03 +0000] "\\x16\\x03" 400 0 "-" "-" "-"',
)
CLOUDFRONT = (
    "2019-12-04\t21:02:31\tLAX1\t392\t192.0.2.100\tGET\td1.cloudfront.net\t/index.html\t200\t-\tMozilla/5.0%20(X)\t-\t-\tHit\tSOX4==\t"
    "d1.cloudfront.net\thttps\t23\t0.001\t-\tTLSv1.2\tECDHE\tHit\tHTTP/2.0\t-\t-\t11040\t0.001\tHit\ttext/html\t78\t-\t-"
)
ALB = (
    "http 2018-11-30T22:23:00.186641Z app/lb/50 192.168.131.39:2817 - -1 -1 -1 502 - 34 366 "
    '"GET http://www.example.com:80/ HTTP/1.1" "curl/7.46.0" - - arn:aws:x "Root=1-5" "-" "-" 0 2018-11-30T22:22:48.364000Z "forward"'
)


def of_preset(name: str, *lines: str) -> list[dict[str, str | None]]:
    preset = PRESETS[name]
    rows = run("\n".join(lines).encode(), preset.pattern, preset.comment or "")
    assert [row[1] for row in rows] == [None] * len(rows)
    return [dict(zip(columns_of(preset.pattern), row[0], strict=True)) for row in rows]


def test_presets_read_lines_in_the_shape_of_their_logs() -> None:
    first, second = of_preset("nginx", *NGINX)
    assert (first["remote_addr"], first["remote_user"], first["request_uri"]) == ("203.0.113.7", "ann", "/a?b=c")
    assert (second["remote_user"], second["request_method"], second["http_user_agent"]) == (None, None, None)
    (common,) = of_preset("apache", NGINX[0].split(' "http')[0])
    assert (common["body_bytes_sent"], common["http_referer"]) == ("123", None)
    (row,) = of_preset("cloudfront", "#Version: 1.0", "#Fields: date time", CLOUDFRONT)
    assert (row["time"], row["c_ip"], row["cs_referer"]) == ("2019-12-04\t21:02:31", "192.0.2.100", None)
    (row,) = of_preset("alb", ALB)
    assert (row["client_ip"], row["target_ip"], row["elb_status_code"], row["request_verb"]) == (
        "192.168.131.39", None, "502", "GET",
    )  # fmt: skip


@pytest.mark.parametrize(("name", "line"), [("nginx", NGINX[0]), ("cloudfront", CLOUDFRONT), ("alb", ALB)])
def test_a_line_that_is_cut_off_within_the_columns_is_no_row(name: str, line: str) -> None:
    preset = PRESETS[name]
    whole = re.match(preset.pattern, line)
    assert whole is not None
    rows = run("\n".join(line[:end] for end in range(1, whole.end())).encode(), preset.pattern)
    assert {row[1] for row in rows} == {MATCH}
