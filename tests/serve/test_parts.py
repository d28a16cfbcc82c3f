"""Pages of shards make pages of all of them: each row once, in order, however the shards' own pages end."""

from hypothesis import given
from hypothesis import strategies as st

from sessionlake.serve.parts import Part, together
from tests.support import examples

KEYS = st.sampled_from(["", "a", "a\0", "b", "é", "\U0001f600"])
SHARDS = st.dictionaries(KEYS, st.sets(st.integers(-3, 3), min_size=1, max_size=4))


@examples(200)
@given(SHARDS, st.integers(1, 3), st.integers(1, 4), st.lists(st.integers(1, 4), min_size=3, max_size=3))
def test_pages_of_parts_list_each_row_once(held: dict[str, set[int]], count: int, limit: int, ends: list[int]) -> None:
    """Each shard's page ends after `ends` of its rows, fewer than asked for or more."""
    order = sorted(
        ((key, start) for key, starts in held.items() for start in starts), key=lambda at: (at[0].encode(), at[1])
    )
    shards = [[at for at in order if sorted(held).index(at[0]) % count == n] for n in range(count)]
    found: list[tuple[str, int]] = []
    after = 0
    while True:
        parts = []
        for rows, end in zip(shards, ends, strict=False):
            left = [at for at in rows if at in order[after:]]
            parts.append(Part([(*at, f"{at}") for at in left[:end]], left[end - 1] if len(left) > end else None))
        whole = together([Part.from_json(part.json()) for part in parts])
        page = [row[:2] for row in whole.rows[:limit]]
        assert [row[2] for row in whole.rows[:limit]] == [str(at) for at in page]
        found += page
        if whole.reached is None and len(whole.rows) <= limit:
            assert found == order
            return
        assert page
        after = order.index(page[-1]) + 1
