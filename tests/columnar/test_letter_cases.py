"""Cases of letters: texts by themselves are those of texts side by side, and every character is as in Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sessionlake.columnar.letter_cases import initial_case, lower_case, reversed_texts, upper_case

LETTERS = st.text(st.sampled_from([*"aZ Σσς\0ßİ\u0131ﬁǆ\u0301\u00ad.😀", "\U00010d50", "\u1c89"]), max_size=6)


@given(
    st.lists(st.none() | LETTERS, max_size=8), st.sampled_from([lower_case, upper_case, initial_case, reversed_texts])
)
def test_a_text_is_the_same_among_others_as_alone(texts: list[str | None], function: Any) -> None:
    alone = [function(pa.array([text], pa.string())).to_pylist()[0] for text in texts]
    assert function(pa.array(texts, pa.string())).to_pylist() == alone
    assert function(pa.array(["x", *texts], pa.string()).slice(1)).to_pylist() == alone


@pytest.mark.slow
def test_every_character_is_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    characters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code <= 0xDFFF]
    pq.write_table(pa.table({"s": characters}), tmp_path / "s.parquet")
    forms = {
        "s": "{}",
        "'a' || s || 'a'": "a{}a",
        "' ' || s || 'b'": " {}b",
        "'aΣ' || s": "aΣ{}",
        "'aΣ' || s || 'a'": "aΣ{}a",
        "s || 'Σ'": "{}Σ",
    }
    functions = {"lower": lower_case, "upper": upper_case, "initcap": initial_case}
    asked = [(name, sql) for name in functions for sql in forms]
    rows = spark.read.parquet(str(tmp_path / "s.parquet")).coalesce(1)
    theirs = rows.selectExpr(*(f"{name}({sql}) as c{number}" for number, (name, sql) in enumerate(asked))).toArrow()
    for (name, sql), column in zip(asked, theirs.columns, strict=True):
        ours = functions[name](pa.array([forms[sql].format(character) for character in characters]))
        assert ours.to_pylist() == column.to_pylist(), (name, sql)
