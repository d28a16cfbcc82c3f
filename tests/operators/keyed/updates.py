"""Updates of keyed tables whose rows expire."""

from typing import Any

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
TICK = [{"kind": "tick"}]


def update(key: str, time: int, v: int = 0) -> dict[str, Any]:
    return {"key": key, "time_us": time, "v": v}
