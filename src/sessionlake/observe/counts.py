"""A batch's counts, or all batches' sums, as metrics."""

from collections.abc import Iterator, Mapping
from typing import Any

from sessionlake.observe import metrics
from sessionlake.observe.metrics import Metric
from sessionlake.operators.shared.cleanups.names import EXPIRY_LAG, LIVE_ROWS, LRU, ROUND, TTL
from sessionlake.warehouse import schemas

_OUTCOMES = {
    metrics.EVENTS: schemas.OUTCOMES,
    metrics.CORRECTIONS: ("applied", "stale", "expired", "malformed"),
}
_OPS = {"upsert": "upserts", "delete": "deletes"}


def expiry_values(
    state: Mapping[str, Any], counts: Mapping[str, int]
) -> Iterator[tuple[Metric, float, tuple[str, ...]]]:
    """Yield metric, value and labels of a batch's [ttl] removals, and of the table's rows after it, if known."""
    for cause in (TTL, LRU):
        yield metrics.EXPIRED_ROWS, counts.get(f"deleted_by_{cause}", 0), (cause,)
    yield metrics.EXPIRY_SCANNED, counts.get("scanned", 0), ()
    yield metrics.CLEANUP_SECONDS, counts.get("cleanup_us", 0) / 1e6, ()
    for name, metric in ((EXPIRY_LAG, metrics.EXPIRY_LAG), (ROUND, metrics.CLEANUP_ROUND)):
        if state.get(name) is not None:
            yield metric, int(state[name]) / 1e6, ()
    if state.get(LIVE_ROWS) is not None:
        yield metrics.TABLE_ROWS, int(state[LIVE_ROWS]), ()


def count_values(counts: Mapping[str, int]) -> Iterator[tuple[Metric, int, tuple[str, ...]]]:
    """Yield metric, value and labels of counts (`schemas.COUNTS`). Counts of 0 are included: without them a first count is no increase."""
    yield metrics.INPUT_EVENTS, counts.get("input", 0), ()
    for metric, outcomes in _OUTCOMES.items():
        for outcome in outcomes:
            yield metric, counts.get(outcome, 0), (outcome,)
    for op, name in _OPS.items():
        yield metrics.CHANGES, counts.get(name, 0), (op,)
