"""Texts in the order of their bytes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar import texts
from tests.support import examples

# Few letters, and long repetitions of them: texts that are equal for several words, and that end with a zero.
PARTS = st.sampled_from(["a", "b", "\0", "é", "aaaaaaaa", "user-0000", "bbbbb", "\0\0\0\0\0\0\0\0"])
TEXTS = st.lists(st.lists(PARTS, max_size=8).map("".join), max_size=40)


@pytest.fixture(params=[0, 3, 64], ids="{} are few".format)
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_FEW", request.param)


@examples(150)
@given(found=TEXTS)
@pytest.mark.usefixtures("few")
def test_texts_are_sorted_by_their_bytes(found: list[str]) -> None:
    for given_ in (
        pa.array(found, pa.string()),
        pa.array(map(str.encode, found), pa.binary()),
        pa.array(["-", *found])[1:],
    ):
        order = texts.text_order(given_)
        assert sorted(order.tolist()) == list(range(len(found)))
        assert [found[place] for place in order] == sorted(found, key=str.encode)


@pytest.mark.parametrize("equal", [0, 7, 8, 31, 32, 33, 100])
def test_texts_that_differ_late_are_sorted(equal: int) -> None:
    found = [f"{'x' * equal}{tenant}|{number}" for tenant in ("acme", "acm", "zoo") for number in range(300)]
    order = texts.text_order(pa.array(found))
    assert [found[place] for place in order] == sorted(found)


@examples(50)
@given(found=TEXTS)
@pytest.mark.usefixtures("few")
def test_codes_are_ranks_among_distinct_texts(found: list[str]) -> None:
    codes, keys = texts.sorted_codes(pa.chunked_array([found[::2], found[1::2]], pa.string()))
    assert keys.to_pylist() == sorted(set(found), key=str.encode)
    assert [keys[code].as_py() for code in codes.tolist()] == [*found[::2], *found[1::2]]


@pytest.mark.parametrize("equal", range(40))
def test_no_byte_is_passed_over(equal: int) -> None:
    """What follows the bytes that tell two texts apart sorts the other way round."""
    found = [
        f"{group}{'x' * equal}{number:02d}{99 - number:02d}{99 - number:08d}" for group in "ab" for number in range(99)
    ]
    order = texts.text_order(pa.array(found[::-1]))
    assert [found[::-1][place] for place in order] == found
