"""Fields of columns without Spark: nested events and the same events flattened by hand give equal results, for each operator (rule 460)."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.operators import OPERATORS
from sessionlake.testing import Harness
from tests.local.configs import CONFIGS
from tests.local.configs import given as of_inputs
from tests.support import examples

MINUTE_US = 60_000_000
PATHS = {"key": "who.key", "time_us": "meta.`at.us`", "v": "data.more.v", "kind": "data.kind"}
"""Where the nested events have the flat events' columns."""


def nested_config(value: Any) -> Any:
    """Return a config's part with a path in place of each column: in SQL too."""
    if isinstance(value, dict):
        return {
            name: nested_config(inner) if name not in ("class", "output") else inner for name, inner in value.items()
        }
    if isinstance(value, list):
        return [nested_config(inner) for inner in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\b(key|time_us|v|kind)\b", lambda found: PATHS[found[1]], value)


def nested_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row's values as fields. A missing value is a missing field, or a missing column."""
    found: dict[str, Any] = {"meta": {"at.us": row["time_us"]}, "other": {"v": 7}}
    if row["key"] is not None:
        found["who"] = {"key": row["key"], "name": "x"}
    if row["v"] is not None or row["kind"] is not None:
        found["data"] = {"kind": row["kind"]} | ({} if row["v"] is None else {"more": {"v": row["v"]}})
    return found


rows = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["ann", "bob", "", None]),
        "time_us": st.integers(0, 90).map(lambda minute: minute * MINUTE_US),
        "v": st.one_of(st.none(), st.integers(-5, 5)),
        "kind": st.sampled_from(["buy", "view", None]),
    }
)
FIRST = {"key": "ann", "time_us": 0, "v": 1, "kind": "buy"}
"""A row that shows each column's type."""


@pytest.mark.parametrize("operator", OPERATORS)
@given(batches=st.lists(st.lists(rows, max_size=6), min_size=1, max_size=3))
@examples(8)
def test_nested_events_give_what_flat_events_give(operator: str, batches: list[list[dict[str, Any]]]) -> None:
    config = with_where(CONFIGS[operator])
    flat, nested = Harness(config), Harness(nested_config(config))
    for batch in [[FIRST], *batches]:
        there = [nested_row(row) for row in batch]
        one, other = flat.process(of_inputs(operator, batch)), nested.process(of_inputs(operator, there))
        assert (one.changes, one.counts) == (other.changes, other.counts)
        assert [len(one.late), len(one.dead)] == [len(other.late), len(other.dead)]


def with_where(value: Any) -> Any:
    """Return a config's part in which each input lets some rows pass."""
    if not isinstance(value, dict):
        return value
    found = {name: with_where(inner) for name, inner in value.items()}
    return {**found, "where": "kind = 'buy' or kind is null"} if "time" in found else found


def test_a_key_may_be_an_element() -> None:
    config: dict[str, Any] = CONFIGS["session"]
    harness = Harness({**config, "event": {**config["event"], "key": "tags[0]"}})
    output = harness.process([{"tags": ["ann", "x"], **FIRST}, {"tags": ["ann"], **FIRST}])
    assert [(row["session_key"], row["event_count"]) for row in output.changes] == [("ann", 2)]
