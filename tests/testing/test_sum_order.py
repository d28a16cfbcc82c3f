"""A sum of whole numbers has one value, whatever the order of batches (docs/rules.md, rule 466)."""

import itertools

from sessionlake.testing import Harness

CONFIG = {
    "source": {"kind": "files", "path": "x", "format": "json"},
    "event": {"key": "k", "time": "t", "time_unit": "us"},
    "session": {"gap": "30 minutes", "grace": "1 day"},
    "aggregates": {"s": "sum(v)", "largest": "max(v)"},
}
BIG = 2**63 - 1


def totals(*values: int) -> list[int | None]:
    """Return the sum after each batch of one value."""
    with Harness(CONFIG) as harness:
        return [harness.process([{"k": "a", "t": 0, "v": value}]).changes[0]["s"] for value in values]


def test_a_sum_that_leaves_64_bits_and_comes_back_does_not_depend_on_the_order() -> None:
    assert totals(BIG, 10, -20) == [BIG, None, BIG - 10]
    for order in itertools.permutations((BIG, 10, -20)):
        assert totals(*order)[-1] == BIG - 10


def test_a_sum_of_a_batch_beyond_64_bits_is_null_until_it_comes_back() -> None:
    assert totals(-BIG, -BIG, -BIG, BIG, BIG, BIG) == [-BIG, None, None, None, -BIG, 0]
