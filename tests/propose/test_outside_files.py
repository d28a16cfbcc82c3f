"""`init` and `check` of a Delta table whose log names files outside of it."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sessionlake.config.load import parse_config
from sessionlake.errors import SourceError
from sessionlake.preflight.sources import LoggedTable
from sessionlake.propose.tables import read_delta


@pytest.mark.parametrize("place", ["file://{}", "{}", "../other/{.name}", "s3://bucket/{.name}"])
def test_a_file_outside_of_the_table_is_refused_and_named(tmp_path: Path, place: str) -> None:
    table, other = tmp_path / "table", tmp_path / "other"
    for one in (table, other):
        write_deltalake(one, pa.table({"user": ["u1"], "a.b": [1]}))
    (file,) = other.glob("*.parquet")
    (line,) = [one for one in (other / "_delta_log" / f"{0:020d}.json").read_text().splitlines() if '"add"' in one]
    action = json.loads(line)
    action["add"]["path"] = place.format(file)
    assert len(read_delta(table, 1 << 20)[1]) == 1
    (table / "_delta_log" / f"{1:020d}.json").write_text(json.dumps(action))
    assert DeltaTable(table).version() == 1
    with pytest.raises(SourceError, match=r"^init: .* names a file outside of the table, "):
        read_delta(table, 1 << 20)
    raw = {
        "pipeline": {"name": "p", "warehouse": "lake"},
        "source": {"kind": "delta", "path": str(table)},
        "event": {"key": "user", "time": "at"},
        "session": {"gap": "1 hour"},
    }
    with pytest.raises(
        SourceError, match=r"^source.path: .* names a file outside of the table, .*shallow_clones = true"
    ):
        LoggedTable(None, parse_config(raw, tmp_path)).columns()  # type: ignore[arg-type]
    raw["source"]["shallow_clones"] = True  # type: ignore[index]
    assert LoggedTable(None, parse_config(raw, tmp_path)).columns() == ["user", "`a.b`"]  # type: ignore[arg-type]
