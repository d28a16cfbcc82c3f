"""Tables whose rows expire against a plain model (`tests/oracle/expiry.py`), on random streams and clocks."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.testing.tables import TableHarness, TableOutput
from tests.oracle.expiry import Expired, ExpiringTable
from tests.oracle.tables import Row, Table
from tests.support import examples

SECOND = 1_000_000
RETENTION_S = 100
TTL_S, EVERY_S = 50, 20
COLUMNS = {"v": "long", "s": "string"}
EVENTS = st.builds(
    lambda key, time, deleted, eid, v: {"key": key, "time_us": time * SECOND, "deleted": deleted, "eid": eid, "v": v},
    st.sampled_from(["a", "b", "c", "dé"]),
    st.integers(0, 400),
    st.integers(0, 5).map(lambda n: n == 0),
    st.sampled_from([None, "1", "2"]),
    st.none() | st.integers(0, 400),
)
BATCHES = st.lists(st.tuples(st.lists(EVENTS, max_size=6), st.integers(-20, 90)), min_size=1, max_size=8)
"""Updates, and how far the clock is after the batch before: it may be set back."""
AT = "timestamp_seconds(v)"
DONE = "v % 2 = 0 and event_time < now() - interval 50 seconds"


def after_time(row: Row, clock: int) -> bool:
    return bool(row["event_time"] + TTL_S * SECOND <= clock)


def at_column(row: Row, clock: int) -> bool:
    return row["v"] is not None and row["v"] * SECOND <= clock


def done(row: Row, clock: int) -> bool:
    return row["v"] is not None and row["v"] % 2 == 0 and row["event_time"] < clock - 50 * SECOND


def after_write(row: Row, clock: int) -> bool:
    return bool(row["written"] + TTL_S * SECOND <= clock)


def after_insert(row: Row, clock: int) -> bool:
    return bool(row["inserted"] + TTL_S * SECOND <= clock)


RULES: dict[str, tuple[dict[str, str], Expired]] = {
    "ttl": ({"ttl": f"{TTL_S} s"}, after_time),
    "expires_at": ({"expires_at": AT}, at_column),
    "where": ({"where": DONE}, done),
    "write": ({"ttl": f"{TTL_S} s", "since": "write"}, after_write),
    "insert": ({"ttl": f"{TTL_S} s", "since": "insert"}, after_insert),
}
FAST = [("index", "insert"), ("scan", "where"), ("time_boxed", "expires_at")]
"""What the fast tests have: each pattern and each kind of rule once."""
PATTERNS = [
    *((pattern, rule) for pattern in ("scan", "time_boxed") for rule in ("ttl", "expires_at", "where")),
    *(("index", rule) for rule in ("ttl", "expires_at", "write", "insert")),
]


def changes_of(output: TableOutput) -> list[Row]:
    names = {"table_key": "key", "event_time": "time"}
    kept = ("op", "table_key", "event_time", "cause", "v", "s")
    return sorted(({names.get(n, n): row[n] for n in kept} for row in output.changes), key=lambda row: str(row["key"]))


@pytest.mark.parametrize(
    ("pattern", "rule"), [pytest.param(*one, marks=() if one in FAST else pytest.mark.slow) for one in PATTERNS]
)
@examples(40)
@given(
    batches=BATCHES,
    tombstones=st.lists(st.tuples(st.integers(0, 7), st.sampled_from("abc"), st.integers(0, 3)), max_size=3),
    shards=st.integers(1, 2),
    tasks=st.integers(1, 2),
    stream=st.booleans(),
    by_offset=st.booleans(),
    lost=st.sets(st.integers(0, 7)),
)
def test_every_batch_takes_away_what_has_expired_at_its_clock(
    pattern: str,
    rule: str,
    batches: list[tuple[list[Row], int]],
    tombstones: list[tuple[int, str, int]],
    shards: int,
    tasks: int,
    lost: set[int],
    *,
    stream: bool,
    by_offset: bool,
) -> None:
    named, expired = RULES[rule]
    stream = stream and "since" not in named
    ttl: dict[str, Any] = {
        "pattern": pattern,
        **named,
        "every": f"{EVERY_S} s",
        "clock": "stream" if stream else "wall",
    }
    model = ExpiringTable(Table(RETENTION_S * SECOND, by_offset=by_offset), expired, EVERY_S * SECOND, stream=stream)
    order: dict[str, Any] = {"order": "offset"} if by_offset else {"event_id": "eid"}
    clock, offset = 100 * SECOND, 0
    with TableHarness(COLUMNS, retention=f"{RETENTION_S} s", shards=shards, ttl=ttl, **order) as harness:
        for number, (events, step) in enumerate(batches):
            clock += step * SECOND
            if number in lost:
                harness.lose_stores()
            rows = list(events)
            if by_offset:
                rows = [{**row, "offset": offset + n, "eid": None} for n, row in enumerate(rows)]
                offset += len(rows)
            removals = [
                {
                    "kind": "tombstone",
                    "key": k,
                    "revision": model.table.revisions.get(k, 0) - (g == 0),
                    "correction_id": str(i),
                }
                for i, (batch, k, g) in enumerate(tombstones)
                if batch == number
            ]
            # Every batch has a row: without one there is none.
            output = harness.process([*rows, *removals, {"kind": "tick"}], tasks=tasks, clock_us=clock)
            assert changes_of(output) == model.batch([*rows, *removals], clock)
            assert harness.rows() == model.table.rows()
            counts = output.counts
            outcomes = sum(counts.get(name, 0) for name in ("changed", "superseded", "unchanged"))
            assert counts.get("accepted", 0) == outcomes == len(rows) - len(output.dead)
            assert harness.state["live_rows"] == len(harness.rows())
            assert harness.state["last_delete_us"] == model.table.last_delete
            if pattern == "index":
                assert rule == "expires_at" or counts.get("decoded", 0) == 0
                met = [met_at(entry) for entry in harness.index()]
                for key, row in harness.rows().items():
                    times = {"written": model.written[key], "inserted": model.inserted[key]}
                    # One that never expires has no entry; any other one at its expiry, or before it.
                    never = rule == "expires_at" and row["v"] is None
                    assert never or any(k == key and not expired({**row, **times}, at - 1) for at, k in met)
                if not stream and "cleanup_us" in counts:
                    assert all(at > clock for at, _ in met)


def met_at(entry: bytes) -> tuple[int, str]:
    """Return the time and the key of an entry of the index."""
    return int.from_bytes(entry[:8]) - (1 << 63), entry[8:].decode()


@pytest.mark.parametrize("pattern", ["index", pytest.param("scan", marks=pytest.mark.slow)])
@examples(30)
@given(
    batches=BATCHES,
    most=st.integers(1, 2),
    page=st.integers(1, 3),
    lost=st.sets(st.integers(0, 7)),
    events=st.lists(EVENTS, max_size=12),
)
def test_no_more_rows_go_than_a_cleanup_may_take_away(
    pattern: str, batches: list[tuple[list[Row], int]], most: int, page: int, lost: set[int], events: list[Row]
) -> None:
    """Which ones does not depend on when the store was restored."""
    ttl = {"pattern": pattern, "ttl": f"{TTL_S} s", "every": f"{EVERY_S} s", "max_per_cleanup": most}
    model = ExpiringTable(
        Table(RETENTION_S * SECOND), after_time, EVERY_S * SECOND, most=most, by_key=pattern == "scan"
    )
    clock = 100 * SECOND
    with (
        pytest.MonkeyPatch.context() as patch,
        TableHarness(COLUMNS, retention=f"{RETENTION_S} s", ttl=ttl, event_id="eid") as harness,
    ):
        patch.setattr("sessionlake.operators.keyed.expiry.index.CHUNK", page)
        for number, (rows, step) in enumerate([(events, 0), *batches]):
            clock += step * SECOND
            if number in lost:
                harness.lose_stores()
            output = harness.process([*rows, {"kind": "tick"}], clock_us=clock)
            assert changes_of(output) == model.batch(rows, clock)
            assert harness.rows() == model.table.rows()


@examples(40)
@given(
    batches=BATCHES,
    tombstones=st.lists(st.tuples(st.integers(0, 7), st.sampled_from("abc")), max_size=3),
    shards=st.integers(1, 2),
    by_offset=st.booleans(),
    lost=st.sets(st.integers(0, 7)),
)
def test_rows_of_segments_are_absent_as_soon_as_their_time_is_over(
    batches: list[tuple[list[Row], int]],
    tombstones: list[tuple[int, str]],
    shards: int,
    lost: set[int],
    *,
    by_offset: bool,
) -> None:
    model = ExpiringTable(Table(RETENTION_S * SECOND, by_offset=by_offset), lambda *_: False, SECOND)
    order: dict[str, Any] = {"order": "offset"} if by_offset else {"event_id": "eid"}
    ttl = {"pattern": "segments", "ttl": f"{TTL_S} s", "every": f"{EVERY_S} s"}
    clock, offset = 100 * SECOND, 0
    with TableHarness(COLUMNS, retention=f"{RETENTION_S} s", shards=shards, ttl=ttl, **order) as harness:
        for number, (events, step) in enumerate(batches):
            clock += step * SECOND
            if number in lost:
                harness.lose_stores()
            rows = list(events)
            if by_offset:
                rows = [{**row, "offset": offset + n, "eid": None} for n, row in enumerate(rows)]
                offset += len(rows)
            removals = [
                {"kind": "tombstone", "key": k, "revision": model.table.revisions.get(k, 0), "correction_id": str(i)}
                for i, (batch, k) in enumerate(tombstones)
                if batch == number
            ]
            output = harness.process([*rows, *removals, {"kind": "tick"}], clock_us=clock)
            model.hide(TTL_S * SECOND, clock)
            assert changes_of(output) == model.batch([*rows, *removals], clock)
            assert harness.rows() == model.table.rows()
            assert harness.state["last_delete_us"] == model.table.last_delete
            assert harness.state["hidden_written_us"] == model.hidden


def uuid7(ms: int, n: int) -> str:
    text = f"{ms:012x}"
    return f"{text[:8]}-{text[8:]}-7{n:03x}-8000-000000000000"


def ulid(ms: int, n: int) -> str:
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    return "".join(digits[(ms >> 5 * place) % 32] for place in range(9, -1, -1)) + f"{n:016d}"


@pytest.mark.parametrize(("key_format", "made"), [("uuid7", uuid7), ("ulid", ulid)])
@examples(30)
@given(batches=BATCHES, narrowed=st.booleans(), shards=st.integers(1, 2), lost=st.sets(st.integers(0, 7)))
def test_keys_that_begin_with_their_time_expire_by_it(
    key_format: str,
    made: Callable[[int, int], str],
    batches: list[tuple[list[Row], int]],
    shards: int,
    lost: set[int],
    *,
    narrowed: bool,
) -> None:
    def expired(row: Row, clock: int) -> bool:
        return bool(row["v"] * SECOND + TTL_S * SECOND <= clock and (not narrowed or row["v"] % 2 == 0))

    ttl = {"pattern": "time_ordered_keys", "key_format": key_format, "ttl": f"{TTL_S} s", "every": f"{EVERY_S} s"}
    ttl |= {"where": "v % 2 = 0"} if narrowed else {}
    model = ExpiringTable(Table(RETENTION_S * SECOND), expired, EVERY_S * SECOND)
    clock = 100 * SECOND
    with TableHarness(COLUMNS, retention=f"{RETENTION_S} s", shards=shards, ttl=ttl, event_id="eid") as harness:
        for number, (events, step) in enumerate(batches):
            clock += step * SECOND
            if number in lost:
                harness.lose_stores()
            rows = [
                {**row, "v": n} | {"key": made(n * 1000, len(row["key"]))} for row in events for n in [row["v"] or 7]
            ]
            output = harness.process([*rows, {"kind": "tick"}], clock_us=clock)
            assert changes_of(output) == model.batch(rows, clock)
            assert harness.rows() == model.table.rows()
            assert narrowed or output.counts.get("decoded", 0) == 0


@pytest.mark.parametrize("retained", [False, True])
@examples(30)
@given(
    batches=st.lists(
        st.tuples(
            st.lists(EVENTS.map(lambda row: {**row, "key": row["key"] + str((row["v"] or 0) % 3)}), max_size=6),
            st.integers(-20, 90),
        ),
        max_size=8,
    ),
    bound=st.integers(1, 6),
    lost=st.sets(st.integers(0, 7)),
)
def test_lru_keeps_those_that_changed_last(
    batches: list[tuple[list[Row], int]], bound: int, lost: set[int], *, retained: bool
) -> None:
    model = ExpiringTable(Table(RETENTION_S * SECOND), lambda *_: False, SECOND)
    ttl = {"pattern": "lru", "max_entries": bound} | ({"changelog_retention": f"{TTL_S} s"} if retained else {})
    clock, evicted = 100 * SECOND, 0
    with TableHarness(COLUMNS, retention=f"{RETENTION_S} s", event_id="eid", ttl=ttl) as harness:
        for number, (rows, step) in enumerate(batches):
            clock += step * SECOND
            if number in lost:
                harness.lose_stores()
            output = harness.process(rows, clock_us=clock)
            if retained:
                model.hide(TTL_S * SECOND, clock)
            changes = model.batch(rows, clock)
            kept = model.table.rows()
            eldest = sorted(kept, key=lambda key: (kept[key]["revision"], kept[key]["event_time"], key.encode()))
            for key in eldest[: max(len(kept) - bound, 0)]:
                changes = model.remove(key, "lru", changes)
            evicted += max(len(kept) - bound, 0)
            assert changes_of(output) == sorted(changes, key=lambda row: str(row["key"]))
            assert harness.rows() == model.table.rows()
            assert len(harness.rows()) <= bound
            assert len(harness.index()) == len(harness.stored_keys())
            # A batch without rows, and an update that changes nothing, leave what is hidden where it is.
            assert harness.stored_keys() == list(harness.rows()) or retained
            assert harness.state["last_delete_us"] == model.table.last_delete
            assert harness.state.get("evicted_rows", 0) == (evicted if retained else 0)
