"""The index of pattern `index`: when it is written, and what a cleanup makes of its entries (docs/decisions/0024)."""

import pytest

from sessionlake.testing.tables import TableHarness
from tests.operators.keyed.updates import HOUR, MINUTE, TICK, update


def entries(table: TableHarness) -> list[tuple[int, str]]:
    """Return the entries of a table's index: when which row is looked at."""
    return [(int.from_bytes(entry[:8]) - (1 << 63), entry[8:].decode()) for entry in table.index()]


def test_the_index_is_written_only_where_a_row_is_to_be_looked_at_sooner() -> None:
    ttl, clock = {"pattern": "index", "expires_at": "timestamp_micros(v)"}, 11 * HOUR
    with TableHarness({"v": "long"}, ttl=ttl) as table:
        found = []
        for later, expires in enumerate([13, 14, 14, 12]):
            table.process([update("a", clock + later) | {"v": expires * HOUR}], clock_us=clock)
            found.append(entries(table))
        # Put off, the same again, and sooner: what is known of the old entry goes, which was that of 14.
        assert found == [[(13 * HOUR, "a")]] * 3 + [[(12 * HOUR, "a"), (13 * HOUR, "a")]]
        table.process([update("b", clock) | {"v": 13 * HOUR}], clock_us=clock)
        table.process([update("b", clock + 1) | {"v": None, "deleted": True}], clock_us=clock)
        assert [key for _, key in entries(table)] == ["a", "a"], (
            "a deleted row's entry goes, where it is of the row's expiry"
        )
        for later, expires in enumerate([14, 12]):
            table.process([update("c", clock + later) | {"v": expires * HOUR}], clock_us=clock)
        assert entries(table)[1] == (12 * HOUR, "c")
        assert len(entries(table)) == 3, "the entry of an expiry that is sooner now goes"
        for later, expires in enumerate([(13, 13), (16, 16), (16, None)]):
            rows = [update(key, clock + later) | {"v": v and v * HOUR} for key, v in zip("de", expires, strict=True)]
            rows[1] |= {"deleted": expires[1] is None}
            table.process(rows, clock_us=clock)
        assert [key for _, key in entries(table)] == ["a", "c", "a", "d", "e"], "e is deleted, and was put off"
        table.process([update("a", clock + 9) | {"v": 20 * HOUR}], clock_us=clock)
        # The row of `a` has two entries; the batch puts it off, too. That of `c` has one, that of `d` is put off; `e` has none.
        out = table.process([update("a", clock + 10) | {"v": 21 * HOUR}], clock_us=15 * HOUR)
        assert (list(table.rows()), out.counts["scanned"]) == (["a", "d"], 5)
        assert entries(table) == [(16 * HOUR, "d"), (21 * HOUR, "a")]
        # A row that has two entries goes once.
        for later, expires in enumerate([17, 18, 16]):
            table.process([update("f", clock + later) | {"v": expires * HOUR}], clock_us=15 * HOUR)
        assert table.process(TICK, clock_us=20 * HOUR).counts["deleted_by_ttl"] == 2
        assert entries(table) == [(21 * HOUR, "a")]


def test_a_cleanup_moves_no_more_entries_than_it_may_take_rows_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessionlake.operators.keyed.expiry.index.CHUNK", 1)
    ttl, clock = {"pattern": "index", "ttl": "1 hour", "max_per_cleanup": 2}, 11 * HOUR
    with TableHarness({"v": "long"}, ttl=ttl) as table:
        for later in (0, 30 * MINUTE):
            table.process([update(key, clock + later) for key in "abc"], clock_us=clock)
        table.process(TICK, clock_us=12 * HOUR)
        assert [due for due, _ in entries(table)] == [12 * HOUR, 12 * HOUR + 30 * MINUTE, 12 * HOUR + 30 * MINUTE]
        for later in (0, 1):
            table.process(TICK, clock_us=13 * HOUR + later)
        assert not table.rows()


def test_the_first_rows_by_expiry_go_whatever_the_index_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a store that was restored, whose entries are at the expiries, would lose others."""
    monkeypatch.setattr("sessionlake.operators.keyed.expiry.index.CHUNK", 1)
    ttl, clock = {"pattern": "index", "expires_at": "timestamp_micros(v)", "max_per_cleanup": 1}, 11 * HOUR
    with TableHarness({"v": "long"}, ttl=ttl) as table:
        for later, rows in enumerate([{"a": 14, "b": 12, "z": 13, "_": 14}, {"b": 14, "_": 20}]):
            updates = [update(key, clock + later) | {"v": expires * HOUR} for key, expires in rows.items()]
            table.process(updates, clock_us=clock)
        left = []
        for later in range(4):
            table.process(TICK, clock_us=15 * HOUR + later)
            left.append("".join(sorted(table.rows())))
    assert left == ["_ab", "_b", "_", "_"]
