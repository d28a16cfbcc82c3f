"""A file that is read in parts gives the rows, the reasons, the texts and the places that it gives as a whole."""

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.errors import SourceError
from sessionlake.sources.decoding import pieces
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.json_lines import decode_json
from sessionlake.sources.decoding.pieces import Piece, parts_of
from tests.sources.decoding.common import COLUMNS, outcome
from tests.support import examples

GOOD = json.dumps({"k": "good", "t": "2026-01-01", "n": 7}).encode()
LINES = st.sampled_from([GOOD, b"", b" ", b"\r", b"{", b"\xff", b'{"k":"' + b"x" * 90 + b'"}', b"\xef\xbb\xbf" + GOOD])


def in_parts(path: str, parts: int, format_: Any = "json", **options: Any) -> list[Any]:
    decoded = (decode(path, path, format_, COLUMNS, piece=Piece(i, parts), **options) for i in range(parts))
    return [row for part in decoded for row in outcome(list(part))]


@examples(150)
@given(
    st.lists(LINES, max_size=12), st.booleans(), st.booleans(), st.integers(2, 5), st.sampled_from([7, 100, 1 << 20])
)
def test_lines(lines: list[bytes], mark: bool, last: bool, parts: int, block: int) -> None:  # noqa: FBT001
    content = (b"\xef\xbb\xbf" if mark else b"") + b"\n".join(lines) + (b"\n" if last else b"")
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "f.json"))
        Path(path).write_bytes(content)
        read = [decode_json(path, path, COLUMNS, block, 80, Piece(i, parts)) for i in range(parts)]
        found = [row for part in read for row in outcome(list(part))]
        assert found == outcome(list(decode_json(path, path, COLUMNS, block, 80)))


@examples(60)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(2, 7), st.data())
def test_row_groups(sizes: list[int], parts: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "f.parquet"))
        schema = pa.schema([("k", pa.string()), ("t", pa.string()), ("n", pa.int64())])
        with pq.ParquetWriter(path, schema) as writer:
            for group, size in enumerate(sizes):
                rows = [{"k": f"{group}", "t": "2026-01-01" if i else "never", "n": i} for i in range(size)]
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        if data.draw(st.booleans()):  # damage to one group's bytes
            found = pq.read_metadata(path)
            group = data.draw(st.integers(0, found.num_row_groups - 1)) if found.num_row_groups else 0
            content = bytearray(Path(path).read_bytes())
            if found.num_row_groups and found.row_group(group).num_rows:
                at = found.row_group(group).column(0).dictionary_page_offset or 4
                content[at : at + 6] = b"\xff" * 6
            Path(path).write_bytes(bytes(content))
        whole = outcome(list(decode(path, path, "parquet", COLUMNS)))
        assert in_parts(path, parts, "parquet") == whole


@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_what_is_wrong_with_the_whole_file_is_said_once(tmp_path: Path, format_: Any) -> None:
    path = tmp_path / f"f.{format_}"
    path.write_bytes(b"nothing\n" * 3)
    rows = in_parts(str(path), 3, format_)
    assert rows == outcome(list(decode(str(path), str(path), format_, COLUMNS)))
    path.unlink()
    for part in range(2):
        with pytest.raises(SourceError, match="doesn't exist"):
            list(decode(str(path), str(path), format_, COLUMNS, piece=Piece(part, 2)))


def test_a_place_that_can_not_be_counted_any_more_is_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(GOOD + b"\n{\n")
    (bad,) = decode(str(path), str(path), "json", COLUMNS, piece=Piece(1, 2))
    path.unlink()
    assert bad.position([0]).to_pylist() == [str(path)]


def test_into_how_many_parts_a_file_may_be_cut(tmp_path: Path) -> None:
    table = pa.table({"k": ["a"] * 30})
    pq.write_table(table, tmp_path / "three.parquet", row_group_size=10)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1" * 9)
    with patch.object(pieces, "_LEAST_BYTES", 10):
        cases = {
            ("f.json", 40, "json"): 4,
            ("f.json", 29, "json"): 2,
            ("f.json", 19, "json"): 1,
            ("f.json.gz", 40, "json"): 1,
            ("f.csv", 40, "csv"): 1,
            ("three.parquet", 1000, "parquet"): 3,
            ("bad.parquet", 1000, "parquet"): 1,
            ("gone.parquet", 1000, "parquet"): 1,
        }
        found = {case: parts_of(str(tmp_path / case[0]), case[1], case[2], 8) for case in cases}  # type: ignore[arg-type]
    assert found == cases
