"""Groups read from the stores next to the stream."""

from collections.abc import Iterator

import pytest

from sessionlake.config.load import Config
from sessionlake.errors import UnsupportedOperationError
from sessionlake.local.source import local_config
from sessionlake.serve.decoder import decoder_of
from sessionlake.serve.replica import LocalShard, View
from sessionlake.store.secondary import SecondarySegments, identity
from sessionlake.testing import Harness
from sessionlake.warehouse.batch_commit import BatchCommit, Settings

KEYS = ("b", "a", "a\0b", "é", "zz", "gone")
CONFIG = {
    "source": {"kind": "files", "path": "events", "format": "json"},
    "event": {"key": "key", "time": "time_us", "time_unit": "us"},
    "group": {},
    "aggregates": {"total": "sum(v)", "mean": "avg(v)"},
}


@pytest.fixture
def harness() -> Iterator[Harness]:
    """Two batches; a tombstone has removed a row."""
    with Harness(CONFIG) as made:
        made.process([{"key": key, "time_us": n, "v": n} for n, key in enumerate(KEYS)], 10)
        rows = [{"key": "b", "time_us": 9, "v": 4}, {"key": "zz", "time_us": 3, "v": None}]
        made.process(rows, 20, corrections=[{"kind": "tombstone", "key": "gone", "revision": 0}])
        yield made


def view_of(harness: Harness) -> View:
    """Return a view of the one store as of the last batch."""
    config: Config = local_config(CONFIG)
    [store] = harness.stores(harness._build())
    path = store._db.path
    settings = Settings({"aggregates": CONFIG["aggregates"]}, {}, {"v": "int64"})
    commit = BatchCommit("p", "id", 1, "c1", harness.state, {}, ("c1",), "", settings, None, 0, 0)
    shard = LocalShard(path, identity(path), SecondarySegments(path))
    return View(commit, {0: shard}, {}, decoder_of(config, commit))


ROWS = {
    "a": {"changed_at": 10, "event_count": 1, "revision": 0, "total": 1, "mean": 1.0},
    "a\0b": {"changed_at": 10, "event_count": 1, "revision": 0, "total": 2, "mean": 2.0},
    "b": {"changed_at": 20, "event_count": 2, "revision": 1, "total": 4, "mean": 2.0},
    "zz": {"changed_at": 20, "event_count": 2, "revision": 1, "total": 4, "mean": 4.0},
    "é": {"changed_at": 10, "event_count": 1, "revision": 0, "total": 3, "mean": 3.0},
}


def test_a_key_value_store_has_all_groups_in_both_directions(harness: Harness) -> None:
    store = view_of(harness).key_value_store()
    assert list(store.all()) == list(ROWS.items())
    assert list(store.reverse_all()) == list(ROWS.items())[::-1]
    assert [key for key, _ in store.range("a\0b", "zz")] == ["a\0b", "b", "zz"]
    assert [key for key, _ in store.prefix_scan("a")] == ["a", "a\0b"]
    assert (store.get("b"), store.get("gone"), store.get("none")) == (ROWS["b"], None, None)
    assert store.approximate_num_entries() == len(ROWS)
    with pytest.raises(UnsupportedOperationError):
        store.put("b", {})  # type: ignore[attr-defined]


def test_a_view_lists_groups_page_by_page(harness: Harness) -> None:
    view = view_of(harness)
    found, after = [], None
    while True:
        page = view.scan(None, None, 2, after=after)
        found += page.rows.to_pylist()
        if page.last_key is None:
            break
        after = page.last_key
    assert [(row["group_key"], row["total"]) for row in found] == [(key, row["total"]) for key, row in ROWS.items()]
    assert view.find(["b", "gone"])["event_count"].to_pylist() == [2]
    assert view.complete_from_us is None
