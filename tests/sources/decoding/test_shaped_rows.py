"""Rule 213 at each decoder: rows with values of the wrong type, under a `where` that reads one of two columns."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sessionlake.config.sections import EventSection
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.files import FileDecoder
from sessionlake.sources.decoding.kafka_records import TOMBSTONE_HEADERS, RecordDecoder, Topic
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.ingest import EventSpec, Judged, judge
from sessionlake.stream.shape import Shaping
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse.schemas import TIME

TYPES = {"k": pa.string(), "at": pa.int64(), "kind": TIME, "n": pa.int64()}
YEAR_1, YEAR_2 = "2001-01-01T00:00:00Z", "2002-01-01T00:00:00Z"
CASES = [
    (YEAR_2, "1", "good"),
    (YEAR_1, "1", "filtered"),
    (YEAR_1, "x", "filtered"),
    (YEAR_2, "x", "wrong type: n"),
    ("soon", "1", "wrong type: kind"),
    ("soon", "x", "wrong type: kind"),
]
SHAPING = Shaping.of("event", EventSection(where="kind >= timestamp '2002-01-01'"), ("k", "at"), ("n",))
COLUMNS = EventColumns("k", "at", "us", None, SHAPING.inputs, TYPES, asked=SHAPING.asked)


def judged(rows: list[Rows], decoder: FileDecoder | RecordDecoder) -> list[Judged]:
    spec = EventSpec(decoder, shape=SHAPING.shape(TYPES))
    return [judge(spec, some, 0, NO_WATERMARK) for some in rows]


def outcomes(found: list[Judged]) -> list[str]:
    """Return the reasons of the refused rows up to the value, and one word for each other row."""
    reasons = [r.partition(" =")[0] for one in found for _, some in one.refused for r in some.to_pylist()]
    good, filtered = sum(len(one.good) for one in found), sum(one.filtered for one in found)
    return sorted([*reasons, *["good"] * good, *["filtered"] * filtered])


def quoted(n: str) -> str:
    return n if n.isdigit() else f'"{n}"'


def lines() -> list[str]:
    return [f'{{"k": "a", "at": 1, "kind": "{kind}", "n": {quoted(n)}}}' for kind, n, _ in CASES]


def write(path: Path, format_: str) -> None:
    if format_ == "json":
        path.write_text("\n".join(lines()) + "\n")
    elif format_ == "csv":
        path.write_text("k,at,kind,n\n" + "".join(f"a,1,{kind},{n}\n" for kind, n, _ in CASES))
    else:
        kind, n, _ = zip(*CASES, strict=True)
        pq.write_table(pa.table({"k": ["a"] * len(n), "at": [1] * len(n), "kind": kind, "n": n}), path)


@pytest.mark.parametrize("format_", ["json", "csv", "parquet"])
def test_files(tmp_path: Path, format_: str) -> None:
    path = tmp_path / f"0.{format_}"
    write(path, format_)
    decoder = FileDecoder(COLUMNS, format_, str(tmp_path))  # type: ignore[arg-type]
    rows = list(decoder.decode(pa.table({"path": [str(path)]})))
    assert outcomes(judged(rows, decoder)) == sorted(outcome for _, _, outcome in CASES)


def test_records_of_a_topic() -> None:
    count = len(CASES)
    table = pa.table(
        {
            "value": pa.array([line.encode() for line in lines()], pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count)),
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
            "tombstone": pa.nulls(count, pa.struct([(name, pa.binary()) for name in TOMBSTONE_HEADERS])),
        }
    )
    decoder = RecordDecoder(COLUMNS, Topic("clicks", avro=False))
    assert outcomes(judged(list(decoder.decode(table)), decoder)) == sorted(outcome for _, _, outcome in CASES)


def test_what_is_no_row_is_refused_whatever_where_says(tmp_path: Path) -> None:
    path = tmp_path / "0.json"
    path.write_text('{broken\n{"k": "a", "at": 1}\n')
    decoder = FileDecoder(COLUMNS, "json", str(tmp_path))
    (found,) = judged(list(decoder.decode(pa.table({"path": [str(path)]}))), decoder)
    assert found.filtered == 1
    assert [len(at) for at, _ in found.refused if len(at)] == [1]
