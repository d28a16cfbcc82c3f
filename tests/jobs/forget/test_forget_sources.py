"""Keys of several fields are found in the sources, by the columns that make them, and in broken rows by all of their parts."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.columnar.keys import joint_key
from sessionlake.jobs.forget.keys import Keys, matching
from sessionlake.jobs.forget.lake import Holder, Lake
from sessionlake.jobs.forget.proof import _searched
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.operators.joins.join_support import join_config
from tests.support import make_config

GONE, OTHER = '["7","eu \\"x\\""]', '["8","us"]'
RIGHT: list[dict[str, Any]] = [
    {"id": 7, "region": 'eu "x"', "time_us": 1, "w": 1},
    {"id": 7, "region": 'eu "x"', "time_us": 2, "w": 1},
    {"id": 7, "region": "eu", "time_us": 3, "w": 1},
    {"id": 77, "region": 'eu "x"', "time_us": 4, "w": 1},
    {"id": None, "region": 'eu "x"', "time_us": 5, "w": 1},
    {"id": 9, "region": "us", "note": 'eu "x"', "time_us": 7, "w": 8},
]
LEFT: list[dict[str, Any]] = [{"order_id": row["id"], "v": 0, **row} for row in RIGHT]


def test_parts_of_keys() -> None:
    keys = Keys.of([GONE, '["7"]', "7", '[7,"eu"]', '["a","b","c"]', '{"a":"b"}', "[" * 20_000])
    found = dict(zip(keys.values, keys.parts(2), strict=True))
    assert {key: parts for key, parts in found.items() if parts is not None} == {GONE: ("7", 'eu "x"')}
    assert keys.parts(1) == keys.parts(0) == [(key,) for key in keys.values]


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",))), min_size=2, max_size=4))
def test_parts_are_what_the_key_was_made_of(texts: list[str]) -> None:
    (key,) = joint_key([pa.array([text], pa.string()) for text in texts]).to_pylist()
    assert Keys.of([key]).parts(len(texts)) == [tuple(texts)]


def sources(root: Path) -> dict[str, Path]:
    """Write the left rows as Parquet, the right ones as JSON."""
    paths = {side: root / side / "rows" for side in ("left", "right")}
    for folder in paths.values():
        folder.parent.mkdir()
    pq.write_table(pa.Table.from_pylist(LEFT), paths["left"])
    paths["right"].write_text("\n".join(json.dumps(row) for row in RIGHT))
    return paths


def test_rows_of_sources_are_counted_by_all_fields(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sources(tmp_path)
    right = {"source": {"kind": "files", "format": "json", "path": "right"}}
    left = {"source": {"kind": "files", "format": "parquet", "path": "left"}}
    config = join_config(tmp_path, on=["order_id = id", "region"], left=left, right=right)

    def counted(key: str, *, csv: bool = False) -> dict[str, tuple[int, str | None]]:
        lake = Lake(Tables.of(spark, config), config, Keys.of([key]))
        if csv:
            lake.__dict__["formats"] = {"csv"}
        return {name: _searched(lake, name, side.source) for name, side in config.inputs.items()}

    for name in ("collect", "toPandas", "toArrow", "toLocalIterator", "take", "head"):
        monkeypatch.setattr(type(spark.range(1)), name, None)
    assert counted(GONE) == {"left": (2, None), "right": (2, None)}
    assert counted(OTHER) == counted("7") == counted('["7"]') == {"left": (0, None), "right": (0, None)}
    # A document is searched element by element.
    side = config.inputs["right"].source
    document = side.model_copy(update={"records": "Records"})
    paths["right"].write_text(json.dumps({"Records": RIGHT}))
    lake = Lake(Tables.of(spark, config), config, Keys.of([GONE]))
    assert _searched(lake, "right", document) == (2, None)
    # As lines of CSV any field counts for any part.
    paths["right"].write_text('1,7,"eu ""x"""\n2,7,eu\n"eu ""x""";7\n77,"eu ""x"""\n')
    assert counted(GONE, csv=True)["right"] == (2, None)


@pytest.mark.parametrize(
    ("made", "key"),
    [
        ({"event": {"key": "Day", "columns": {"day": "date_trunc('day', time)"}}}, "Day"),
        ({"event": {"key": ["user", "day"], "columns": {"day": "date_trunc('day', time)"}}}, "day"),
        (
            {
                "event": {"key": "users_plan"},
                "lookup": [{"name": "users", "path": "users", "on": ["user"], "columns": ["plan"]}],
            },
            "users_plan",
        ),
    ],
)
def test_a_source_without_the_key_is_not_searched(
    spark: SparkSession, tmp_path: Path, made: dict[str, Any], key: str
) -> None:
    """A column of the source that has the name of a computed one is another column: its values would be counted falsely."""
    config = make_config(tmp_path, **made)
    lake = Lake(Tables.of(spark, config), config, Keys.of(["2026-11-27"]))
    ((name, side),) = config.inputs.items()
    rows, limit = _searched(lake, name, side.source)
    assert rows == 0
    assert limit is not None
    assert f"its rows don't have {key!r}, which is computed or looked up" in limit


@pytest.mark.slow
def test_broken_rows_are_found_by_all_parts(spark: SparkSession) -> None:
    found = [
        r'{"region": "eu \"x\"", "id": 7, "v": broken',
        r'{"order_id": "7", "region":"eu \u0022x\"", broken',
        r"{id: 7, region: eu \"x\"; broken",
    ]
    kept = [
        r'{"id": 7, "region": "eu"} broken',
        r'{"id": 77, "region": "eu \"x\""} broken',
        r'{"id": 8, "region": "us", "note": "7 eu \"x\""} broken',
        '{"id": 7',
    ]
    keys = Keys.of([GONE]).frame(spark, [["id", "order_id"], ["region"]])
    rows = spark.createDataFrame([(None, raw) for raw in found + kept], "key string, raw string")
    hits = matching(rows.alias("t"), keys, F.expr(Holder(schemas.DEAD_LETTERS, "raw", "value").condition))
    assert sorted(row.raw for row in hits.collect()) == sorted(found)


def test_expressions_hold_in_any_order_and_over_lines() -> None:
    from sessionlake.jobs.forget.keys import _together

    both = re.compile(_together(["a+", "^b|c"]))
    assert all(both.search(text) for text in ("xaa\nc", "c a", "ba"))
    assert not any(both.search(text) for text in ("aa", "xb a", "c"))
