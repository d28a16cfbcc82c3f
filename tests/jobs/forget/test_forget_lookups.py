"""Which versions of tables that are looked up hold a key, beside a plain model."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.equality import key_of
from sessionlake.jobs.forget.lookups import holds
from sessionlake.sources.lookups.dimension import KEY
from tests.support import examples

TEXTS = st.sampled_from(["a", "b", '"', "\\", "\0", "ä", ""])
KEYS = st.lists(
    st.one_of(st.tuples(st.one_of(TEXTS, st.just('["a","b"]'))), st.tuples(TEXTS, TEXTS)), min_size=1, max_size=4
)


@examples(300)
@given(st.lists(st.tuples(TEXTS, TEXTS, st.one_of(st.none(), TEXTS)), max_size=4), st.integers(1, 2), KEYS)
def test_a_row_holds_a_key_if_it_has_all_its_texts(
    rows: list[tuple[str, str, str | None]], compared: int, keys: list[tuple[str, ...]]
) -> None:
    columns = [pa.array([row[at] for row in rows], pa.string()) for at in range(3)]
    table = pa.table({KEY: key_of(columns[:compared]), "plan": columns[2], "number": pa.array(range(len(rows)))})
    seen = [{*row[:compared], row[2], key} for row, key in zip(rows, table[KEY].to_pylist(), strict=True)]
    assert holds(table, keys) == any({*key} <= texts for texts in seen for key in keys)
