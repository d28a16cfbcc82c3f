"""Keys of several columns as text (rule 214): what JSON says of them, whatever the columns hold."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.keys import joint_key, key_parts
from sessionlake.config.joint_keys import joint_text, named_key, parts_of
from sessionlake.errors import ConfigError
from tests.columnar.awkward_texts import AWKWARD
from tests.support import examples

texts = st.one_of(st.sampled_from(AWKWARD), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
rows = st.integers(2, 4).flatmap(lambda n: st.lists(st.tuples(*[texts] * n), min_size=1, max_size=8))


@given(rows)
@examples(300)
def test_a_key_is_the_json_array_of_its_texts_and_gives_them_back(given: list[tuple[str, ...]]) -> None:
    keys = joint_key([pa.array(column) for column in zip(*given, strict=True)])
    assert [tuple(json.loads(key)) for key in keys.to_pylist()] == given
    assert keys.to_pylist() == [joint_text(row) for row in given]
    parts = key_parts(keys, len(given[0]))
    assert [*zip(*(part.to_pylist() for part in parts), strict=True)] == given
    assert [parts_of(key, len(given[0])) for key in keys.to_pylist()] == given


def test_a_key_is_compact_and_null_if_a_text_is() -> None:
    made = joint_key([pa.array(["acme", None, "", "a"]), pa.array(["u7", "x", "", None])])
    assert made.to_pylist() == ['["acme","u7"]', None, '["",""]', None]


def test_other_texts_have_no_parts() -> None:
    others = [None, "", "acme", "[]", '["a"]', '["a","b","c"]', '["a", "b"]', '["', '"]', '["a","b"]']
    first, second = key_parts(pa.array(others, pa.string()), 2)
    assert first.to_pylist() == [None] * 9 + ["a"]
    assert second.to_pylist() == [None] * 9 + ["b"]
    assert [parts_of(key, 2) for key in ("acme", "[1,2]", '["a"]', "{}", "[" * 100_000)] == [None] * 5


@given(st.lists(texts, min_size=3, max_size=3), texts)
@examples(100)
def test_leading_columns_begin_their_keys_and_no_others(given: list[str], other: str) -> None:
    columns = ["a", "b", "c"]
    for count in (1, 2):
        key, prefix = named_key(dict(zip(columns[:count], given, strict=False)), columns, "key")
        assert key is None
        assert joint_text(given).startswith(prefix)
        assert joint_text([*given[: count - 1], other, *given[count:]]).startswith(prefix) == (
            other == given[count - 1]
        )
    assert named_key(dict(zip(columns, given, strict=True)), columns, "key") == (joint_text(given), "")


@pytest.mark.parametrize(
    ("given", "columns", "line"),
    [
        ({"tenat": "a"}, ["tenant", "user"], "key: 'tenat' is no column of the key; write tenant, user"),
        ({"user": "a"}, ["tenant", "user"], "key: 'tenant' is missing; name all columns of the key, or the first ones"),
        ({"user": "a"}, [], "key: 'user' is no column of the key; the key is one column, write its text"),
    ],
)
def test_columns_that_name_no_key_are_refused(given: dict[str, str], columns: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        named_key(given, columns, "key")
    assert str(raised.value) == line
