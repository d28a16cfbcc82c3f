"""Whole rows beside all else that a map task makes of a source's rows: nothing changes, and each readable row is there once."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.load import Config, parse_config
from sessionlake.engine.operator import Aside, BatchContext, Counted, Keyed
from sessionlake.errors import ConfigError
from sessionlake.sources.decoding.decoded import no_row
from sessionlake.sources.decoding.rows import Rows, no_text
from sessionlake.sources.decoding.whole import json_rows
from sessionlake.sources.files import FileSource
from sessionlake.stream.kinds import kind_of
from sessionlake.stream.whole import WHOLE, whole_rows
from tests.support import examples, make_config

CLOCK_US = 1_000
SESSION = {"session": {"gap": "10 us", "grace": "20 us", "retention": "60 us"}, "aggregates": {"total": "sum(v)"}}
FORMS: dict[str, dict[str, Any]] = {
    "session": SESSION,
    "table": {"table": {"columns": ["v"], "retention": "60 us"}},
    "unique": {**SESSION, "event": {"unique_for": "50 us", "id": "other"}},
}
TEXT = st.text(st.characters(codec="utf-8"), max_size=4)
GOOD = st.fixed_dictionaries(
    {
        "key": st.none() | st.sampled_from(["a", "b"]),
        "time_us": st.none() | st.integers(0, 99),
        "v": st.none() | st.integers(0, 9),
    },
    optional={"other": TEXT, "nested": st.lists(st.integers(), max_size=2)},
)
WRONG = st.fixed_dictionaries({"key": st.just("a"), "time_us": st.just("soon") | st.just(5), "v": st.just("two")})
LINES = st.lists((GOOD | WRONG).map(json.dumps) | st.sampled_from(["{", "[1]", ""]), max_size=12)


def config_of(root: Path, form: str, archive: bool | str) -> Config:  # noqa: FBT001
    types = {"key": "string", "time_us": "long", "v": "long", "other": "string"}
    raw = {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": 2, "archive": archive},
        "source": {"kind": "files", "path": "events", "format": "json", "types": types},
        **FORMS[form],
        "event": {"key": "key", "time": "time_us", "time_unit": "us", "where": "v > 3", **FORMS[form].get("event", {})},
    }
    return parse_config(raw, root)


def pieces(config: Config, file: Path) -> list[Any]:
    """Return what a map task makes of a file."""
    kind = kind_of(config).make(config, {"events": FileSource(None, config)}, None)  # type: ignore[arg-type]
    table = pa.table({"path": [str(file)]})
    return list(kind.operator().split(table, BatchContext(0, "c", {}, CLOCK_US)))


def comparable(piece: Any) -> Any:
    if isinstance(piece, Counted):
        return dict(piece.stats)
    return (piece.kind, piece.rows.to_pylist()) if isinstance(piece, (Aside, Keyed)) else piece


@pytest.mark.parametrize("form", FORMS)
@given(lines=LINES)
@examples(60)
def test_nothing_else_changes(form: str, lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        file = root / "events" / "0.json"
        file.parent.mkdir()
        file.write_text("\n".join(lines))
        plain, whole = (pieces(config_of(root, form, archive), file) for archive in (True, "all"))
    kept = [piece for piece in whole if isinstance(piece, Aside) and piece.kind == WHOLE]
    others = [piece for piece in whole if piece not in kept]
    assert [comparable(piece) for piece in others] == [comparable(piece) for piece in plain]
    found = [row for piece in kept for row in piece.rows.to_pylist()]
    readable = [line for line in lines if line.startswith("{") and line != "{"]
    assert [row["raw"] for row in found] == readable
    for row, line in zip(found, map(json.loads, readable), strict=True):
        assert row["key"] == (line["key"] or None)
        time_us = line["time_us"] if isinstance(line["time_us"], int) else CLOCK_US
        assert row["event_time"].timestamp() * 1e6 == pytest.approx(time_us)


def test_rows_of_a_large_file_come_in_pieces(tmp_path: Path) -> None:
    file = tmp_path / "events" / "0.json"
    file.parent.mkdir()
    lines = [f'{{"key":"a","time_us":{i},"v":{i % 9}}}' for i in range(20_000)]
    file.write_text("".join(f"{line}\n" for line in lines))
    whole = [
        p.rows for p in pieces(config_of(tmp_path, "session", "all"), file) if isinstance(p, Aside) and p.kind == WHOLE
    ]
    assert [len(rows) for rows in whole] == [16_384, 3_616]
    found = pa.concat_tables(whole)
    assert found["raw"].to_pylist() == lines
    assert found["event_time"].cast(pa.int64()).to_pylist() == list(range(20_000))


def test_a_row_that_a_lookup_finds_nothing_for_is_kept(tmp_path: Path) -> None:
    """It may be an event of a config without the lookup, unlike one that could not be read."""
    config = config_of(tmp_path, "session", "all")
    spec = kind_of(config).make(config, {"events": FileSource(None, config)}, None).operator().events("events")  # type: ignore[arg-type]
    lines = [f'{{"key":"{name}","time_us":1,"v":1}}' for name in "abc"]
    rows = Rows(
        table=pa.table({"v": [1, 1, 1], "key": ["a", "b", "c"], "time_us": [1, 1, 1]}),
        error=pa.array([None, no_row("customers"), "bad JSON: no object"]),
        raw=no_text,
        source=no_text,
        whole=lambda at: json_rows(pa.array(lines).take(pa.array(at))),
    )
    (kept,) = whole_rows(spec, rows, CLOCK_US)
    assert isinstance(kept, Aside)
    assert kept.rows.select(["key", "raw"]).to_pylist() == [
        {"key": name, "raw": line} for name, line in zip("ab", lines, strict=False)
    ]


def test_a_join_and_avro_are_refused_in_one_line(tmp_path: Path) -> None:
    avro = {"kind": "kafka", "topic": "t", "bootstrap_servers": "h:1", "format": "avro", "avro_schema": "s.avsc"}
    with pytest.raises(ConfigError, match=r"pipeline\.archive: 'all' keeps rows as text, and source\.format is 'avro'"):
        make_config(tmp_path, pipeline={"archive": "all"}, source=avro)
    with pytest.raises(ConfigError, match=r"pipeline\.archive"):
        make_config(tmp_path, pipeline={"archive": "some"})
    side = {
        "source": {"kind": "files", "path": "events", "format": "json"},
        "event": {"time": "time_us", "time_unit": "us"},
        "size": "2 us",
        "columns": ["v"],
    }
    join = {"on": ["key"], "by": "time", "kind": "sliding", "retention": "9 us"}
    sides = {"left": {**side, "name": "l"}, "right": {**side, "name": "r"}}
    pipeline = {"name": "test", "warehouse": "warehouse", "archive": "all"}
    with pytest.raises(ConfigError, match=r"pipeline\.archive: 'all' is for rebuilds, and a \[join\] can't be"):
        parse_config({"pipeline": pipeline, "join": {**join, **sides}}, tmp_path)
