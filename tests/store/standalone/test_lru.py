from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.stores import Serdes, Stores

NUMBERS = (Serdes.int64(), Serdes.int64())
keys = st.integers(0, 5)
steps = st.lists(
    st.tuples(st.sampled_from(["put", "get", "delete", "put_if_absent", "all"]), keys, st.integers(0, 99)), max_size=40
)


@given(st.integers(1, 4), steps)
def test_keeps_the_keys_used_last_as_an_ordered_dict_does(bound: int, taken: list[tuple[str, int, int]]) -> None:
    evicted: list[tuple[int, int]] = []
    gone: list[tuple[int, int]] = []
    store = Stores.lru_map("store", bound, *NUMBERS, on_evicted=lambda key, value: evicted.append((key, value)))
    model: OrderedDict[int, int] = OrderedDict()
    for step, key, value in taken:
        if step == "all":
            assert list(store.all()) == sorted(model.items())
            continue
        there = model.get(key)
        arguments = [key, value] if step.startswith("put") else [key]
        assert getattr(store, step)(*arguments) == (None if step == "put" else there)
        if step == "delete":
            model.pop(key, None)
        elif step == "put" or (step == "put_if_absent" and there is None):
            model[key] = value
            model.move_to_end(key)
            if len(model) > bound:
                gone.append(model.popitem(last=False))
        elif there is not None:
            model.move_to_end(key)
    assert list(store.all()) == sorted(model.items())
    assert list(store.reverse_all()) == sorted(model.items())[::-1]
    assert store.approximate_num_entries() == len(model)
    assert evicted == gone


def test_restoring_keeps_the_bound_and_calls_nobody() -> None:
    evicted: list[Any] = []
    store = Stores.lru_map("store", 10, *NUMBERS, on_evicted=lambda key, _: evicted.append(key))
    store.restore((key.to_bytes(8, "big"), key.to_bytes(8, "big")) for key in range(11))
    assert [key for key, _ in store.all()] == list(range(1, 11))
    assert evicted == []


@pytest.mark.parametrize("bound", [0, -1])
def test_bound_that_keeps_nothing_is_refused(bound: int) -> None:
    with pytest.raises(ValueError, match=r"^max_cache_size: .* keeps no key; give 1 or more$"):
        Stores.lru_map("store", bound, *NUMBERS)
