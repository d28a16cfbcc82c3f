"""The rows that changes replaced or deleted, by all changes that were logged."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]


def replaced_by(changes: Iterable[Row], identity: Sequence[str]) -> list[tuple[int, Row]]:
    """Return each row that a change replaced or deleted, as it was, with the batch of the change."""
    newest: dict[tuple[Any, ...], Row] = {}
    found = []
    for row in sorted(changes, key=lambda row: row["batch_id"]):
        key = tuple(row[name] for name in identity)
        before = newest.get(key)
        if before is not None and before["op"] == "upsert":
            found.append((row["batch_id"], before))
        newest[key] = row
    return found


def assert_replaced(
    kept: Iterable[Row], changes: Iterable[Row], identity: Sequence[str], columns: Sequence[str]
) -> int:
    """Check that kept rows are those that changes replaced; return how many deletes are among them."""
    changes = list(changes)

    def counted(rows: Iterable[tuple[int, Row]]) -> Counter[tuple[Any, ...]]:
        return Counter((batch, *(repr(row[name]) for name in columns)) for batch, row in rows)

    wanted = replaced_by(changes, identity)
    assert counted((row["batch_id"], row) for row in kept) == counted(wanted)
    deletes = {(row["batch_id"], *(row[name] for name in identity)) for row in changes if row["op"] == "delete"}
    return sum((batch, *(row[name] for name in identity)) in deletes for batch, row in wanted)
