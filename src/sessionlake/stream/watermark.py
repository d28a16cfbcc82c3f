"""The watermark: how far event time has come. It decides if an event is late or beyond retention, and if a result is closed.

It is part of an operator's state after each batch. It moves with the greatest time of accepted events and with `advance`
corrections, never back. A pipeline with several inputs has one for each, and its own is the smallest of them, because the
slowest input may still send events of that time.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sessionlake.engine.operator import StateStat
from sessionlake.stream.control import MAX_ADVANCE
from sessionlake.stream.ingest import EVENTS
from sessionlake.warehouse.batch_commit import WATERMARK

NO_WATERMARK = -(1 << 60)
"""Watermark before the first accepted event: far below every time of year 1 to 9999, safe to subtract durations from."""
BY_INPUT = "watermarks_us"
MAX_TIME = StateStat("max_time", greatest=True)
"""The number of a batch with the greatest time of its accepted events."""


def max_time_of(name: str) -> StateStat:
    """Return the number that is the greatest time of an input's accepted events."""
    return MAX_TIME if name == EVENTS else MAX_TIME.of(name)


def watermark_of(state: Mapping[str, Any], name: str | None = None) -> int:
    """Return a state's watermark, or an input's of several; NO_WATERMARK before the first accepted event."""
    watermark = state.get(WATERMARK) if name is None else state.get(BY_INPUT, {}).get(name)
    return NO_WATERMARK if watermark is None else int(watermark)


def advanced(state: Mapping[str, Any], stats: Mapping[str, int], inputs: Sequence[str] = (EVENTS,)) -> dict[str, Any]:
    """Return the state after a batch with these numbers."""
    asked = stats.get(MAX_ADVANCE, NO_WATERMARK)
    if len(inputs) == 1:
        reached = max(watermark_of(state), stats.get(max_time_of(inputs[0]), NO_WATERMARK), asked)
        return {WATERMARK: _known(reached)}
    each = {name: max(watermark_of(state, name), stats.get(max_time_of(name), NO_WATERMARK), asked) for name in inputs}
    return {WATERMARK: _known(min(each.values())), BY_INPUT: {name: _known(us) for name, us in each.items()}}


def _known(watermark_us: int) -> int | None:
    return None if watermark_us == NO_WATERMARK else watermark_us
