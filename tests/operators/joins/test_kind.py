"""The driver's half of a join, without Spark: its spec by the config, and by the settings that a batch was computed under."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.operators.joins.kind import Joins
from sessionlake.operators.joins.table import JOINS
from sessionlake.sources.registry import sources_of
from sessionlake.stream.events import type_names
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse.dialects import DAY_US
from tests.operators.joins.join_support import join_config

TYPES = {"id": "string", "time_us": "long", "v": "long", "w": "double"}


def made(root: Path, pinned: Pinned | None = None, **changes: Any) -> Joins:
    sides = {
        name: {
            "source": {"kind": "files", "path": name, "format": "json", "types": TYPES},
            "event": {"time": "time_us", "time_unit": "us", **changes.pop(f"{name}_event", {})},
        }
        for name in ("left", "right")
    }
    config = join_config(
        root, **{**sides, **{name: {**sides.get(name, {}), **c} if name in sides else c for name, c in changes.items()}}
    )
    return Joins.make(config, sources_of(None, config), pinned)  # type: ignore[arg-type] # no types are learnt through Spark


def test_settings_of_a_batch_make_the_operator_that_it_was_computed_by(tmp_path: Path) -> None:
    skewed = {"left_event": {"max_future_skew": "2 minutes"}, "right_event": {"max_key_bytes": 7}}
    then = made(
        tmp_path, grace="2 us", idle="3 minutes", emit={"early": "10 seconds"}, pipeline={"archive": True}, **skewed
    )
    live = json.loads(json.dumps(then._config.live_settings()))
    now = made(tmp_path, beyond_retention="drop")
    assert now.operator() != then.operator()
    assert now.operator(live).spec == then.operator().spec
    events = then.spec.left.events, then.spec.right.events
    assert [e.max_future_skew_us for e in events] == [120_000_000, 60_000_000]
    assert [e.max_key_bytes for e in events] == [65_536, 7]


def test_a_condition_of_one_side_is_none_of_the_other(tmp_path: Path) -> None:
    then = made(tmp_path, left_event={"where": "v > 1"})
    live = json.loads(json.dumps(then._config.live_settings()))
    assert then.operator(live).spec == then.operator().spec


def test_types_are_pinned_by_side(tmp_path: Path) -> None:
    doubles = {"kind": "files", "path": "right", "format": "json", "types": {**TYPES, "v": "double"}}
    right = {"columns": ["v"], "source": doubles}
    kind = made(tmp_path, right=right)
    names = type_names(kind.inputs)
    assert (names["left:v"], names["right:v"]) == ("int64", "double")
    assert Pinned(names).input("left").types == {"id": "string", "time_us": "int64", "v": "int64"}
    pinned = Pinned({**names, "left:v": "double"})
    assert made(tmp_path, pinned, right=right).spec.left.types == {"v": pa.float64()}
    assert list(kind.event_types) == ["orders_v", "shipments_v"]


def test_a_delete_has_the_time_that_its_tombstone_told(tmp_path: Path) -> None:
    schema = made(tmp_path).spec.pairs_schema
    pair = {"op": "upsert", "join_key": "a", "left_time": 5, "left_position": 1, "right_time": 3, "right_position": 2}
    gone = {"op": "delete", "join_key": "a", "left_time": 4, "left_position": 1, "right_position": 2}
    rows = JOINS.conversion(pa.Table.from_pylist([pair, gone], schema=schema))
    assert rows["join_time"].cast(pa.int64()).to_pylist() == [5, 4]
    assert len(set(rows["join_id"].to_pylist())) == 1


def test_messages_below_the_horizon_are_needed_no_more(tmp_path: Path) -> None:
    config = made(tmp_path)._config
    assert Joins.unneeded(config, {}) == {}
    state = {"horizons": {"left": 2 * DAY_US + 5, "right": None}}
    (left,) = Joins.unneeded(config, state).values()
    assert left == f"(side = 'left' and time < timestamp_micros({2 * DAY_US}))"
    count = {"by": "count", "retention": None, "grace": None, "retention_count": 20}
    numbered = made(tmp_path, **count, left={"size": 3}, right={"size": 4})._config
    both = Joins.unneeded(numbered, {"horizons": {"left": 7, "right": 0}})
    assert both == {"join_messages": f"(side = 'left' and (position & {(1 << 40) - 1}) < 7)"}


def test_messages_of_an_outer_join_are_needed_for_as_long_as_they_are_partners(tmp_path: Path) -> None:
    config = made(tmp_path, type="left", idle="1 s", retention="1 day")._config
    (left,) = Joins.unneeded(config, {"horizons": {"left": 3 * DAY_US + 5, "right": None}}).values()
    assert left == f"(side = 'left' and time < timestamp_micros({2 * DAY_US}))"
