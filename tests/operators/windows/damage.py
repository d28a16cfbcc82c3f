"""Windows that were damaged, and their corrections."""

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from sessionlake.testing.windows import WindowHarness
from tests.oracle.windows import Entry, Event, WindowModel

Slices = dict[tuple[str, int], dict[str, Any]]
Row = tuple[Any, ...]
ROUNDS = st.lists(st.tuples(st.sampled_from(["other", "gone", "bogus"]), st.integers(0, 9)), max_size=4)


def replacement(number: int, key: str, start: int, old: dict[str, Any] | None, new: Any, **more: Any) -> dict[str, Any]:
    """Return a correction that makes a slice, stored as `old`, what `new` is (count and state); None for none."""
    put = [] if new is None else [dict(zip(("event_count", "state"), new, strict=True))]
    return {
        "correction_id": f"{number:05d}",
        "kind": "replace",
        "key": key,
        "start_time": start,
        "revision": 10**6,
        "remove": [] if old is None else [{"start_time": start, "revision": old["revision"]}],
        "put": [{"start_time": start, "end_time": start, **item} for item in put],
        **more,
    }


def damage(stored: Slices, how: list[tuple[str, int]], step: int) -> list[dict[str, Any]]:
    """Return what puts another slice's state, removes a slice, or makes one up; each slice once."""
    names, wrong = sorted(stored), {}
    for what, which in how if names else []:
        key, start = at = names[which % len(names)]
        other = stored[names[(which + 1) % len(names)]]
        if what == "bogus":
            at = key, start + step * (which - 4)
        wrong[at] = None if what == "gone" else (other["count"] + 1, other["state"])
    return [replacement(i, *at, stored.get(at), put) for i, (at, put) in enumerate(wrong.items())]


def contents(run: WindowHarness) -> list[Row]:
    names = ("window_key", "window_start", "window_end", "event_count", "total")
    return [tuple(row[name] for name in names) for row in run.windows()]


def computed(model: WindowModel, events: Iterable[Event]) -> list[Row]:
    """Return the windows that events make, each with all it holds, by the model's rules of which windows there are."""
    found, events = [], list(events)
    for key in {event[0] for event in events}:
        entries = [Entry(event, 0) for event in events if event[0] == key]
        for start in model.existing_starts(entries):
            held = [e.event[2] for e in entries if start <= e.time < start + model.length]
            found.append((key, start, start + model.length - (model.kind == "sliding"), len(held), sum(held)))
    return sorted(found)


def on_grid(model: WindowModel, row: dict[str, Any]) -> bool:
    return model.slice_start((row["key"], row["start_time"], 0)) == row["start_time"]
