"""Values of output rows that are null because they are beyond their type, counted by aggregate (docs/rules.md, rule 466).

Operators compute output values in several places. The engine counts such nulls in one: around its call of the operator.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

BEYOND = "beyond"
"""The counts of a batch are named by it, a colon and the aggregate's name. A count of 0 is missing."""
_counter: ContextVar[Counter[str] | None] = ContextVar("_counter", default=None)


@contextmanager
def counted() -> Iterator[Mapping[str, int]]:
    """Count values beyond their type that `written_values` returns inside the block, by the count's name."""
    found: Counter[str] = Counter()
    token = _counter.set(found)
    try:
        yield found
    finally:
        _counter.reset(token)


def counter() -> Counter[str] | None:
    """Return the counts of the running `counted` block; None outside of a block."""
    return _counter.get()


def by_aggregate(counts: Mapping[str, int]) -> dict[str, int]:
    """Return these counts among a batch's counts, by aggregate name."""
    return {name.partition(":")[2]: n for name, n in counts.items() if name.startswith(f"{BEYOND}:")}


def notes_of(stats: Mapping[str, int]) -> list[str]:
    """Return a warning for each aggregate with values beyond their type, by the counts of a batch.

    >>> notes_of({"beyond:total": 2, "upserts": 7})
    ['aggregates.total: 2 values are null, because the sum is beyond 64 bits; sum a decimal or a double']
    """
    reason = "null, because the sum is beyond 64 bits; sum a decimal or a double"
    return [
        f"aggregates.{name}: {n:,} value{' is' if n == 1 else 's are'} {reason}"
        for name, n in sorted(by_aggregate(stats).items())
    ]
