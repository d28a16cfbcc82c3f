"""Parts of all tests: each test is in one of them, and they take about as long."""

from argparse import ArgumentTypeError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parts import dealt, part_of

seconds = st.dictionaries(st.text(max_size=2), st.integers(0, 1000).map(float))


@given(seconds, st.integers(1, 5))
def test_every_scope_is_in_one_part_and_no_part_is_longer_than_another_by_more_than_its_longest(
    given_: dict[str, float], of: int
) -> None:
    found = dealt(given_, of)
    assert found.keys() == given_.keys()
    assert {*found.values()} <= {*range(1, of + 1)}
    sums = [sum(given_[name] for name, part in found.items() if part == number) for number in range(1, of + 1)]
    assert max(sums) - min(sums) <= max(given_.values(), default=0)
    assert found == dealt(dict(reversed(given_.items())), of), "on each machine alike"


def test_a_part_is_a_number_of_several() -> None:
    assert part_of("2/4") == (2, 4)
    for text in ("0/4", "5/4", "1", "1/0", "a/b", "-1/2", ""):
        with pytest.raises(ArgumentTypeError, match="is no part; write for example 1/4"):
            part_of(text)
