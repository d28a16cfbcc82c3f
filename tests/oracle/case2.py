"""The seed's Case 2 (SAMZA-552): what comes when, and the joins that must be sent when, by time as by count."""

from typing import Any

Pair = tuple[str, str, int, int, int, int]
"""Clock of the batch; id; value; cost; position in Orders; position in Shipments."""


def at(clock: str) -> int:
    """Return a time of the day as microseconds."""
    hours, minutes, seconds = map(int, clock.split(":"))
    return (hours * 3600 + minutes * 60 + seconds) * 1_000_000


ORDERS: list[tuple[str, dict[str, Any]]] = [
    ("9:00:00", {"value": 0, "id": 1, "time_us": at("8:59:10")}),
    ("9:00:59", {"value": 5, "id": 3, "time_us": at("9:00:00")}),
    ("9:02:01", {"value": 9, "id": 9, "time_us": at("8:59:30")}),
]
SHIPMENTS: list[tuple[str, dict[str, Any]]] = [
    ("9:00:00", {"cost": 0, "id": 3, "time_us": at("9:00:10")}),
    ("9:00:10", {"cost": 2, "id": 1, "time_us": at("9:00:10")}),
    ("9:01:01", {"cost": 3, "id": 1, "time_us": at("9:01:10")}),
    ("9:01:01", {"cost": 1, "id": 9, "time_us": at("9:01:20")}),
]
CLOCKS = ["9:00:00", "9:00:10", "9:00:59", "9:01:00", "9:01:01", "9:02:00", "9:02:01", "9:03:00"]
"""With the ticks of each minute, which are batches without input."""
BY: dict[str, dict[str, Any]] = {
    "time": {"by": "time", "retention": "1 hour", "grace": "0 seconds"},
    "count": {"by": "count", "retention_count": 1000},
}
SIZES: dict[str, Any] = {"time": "2 minutes", "count": 3}
EACH_MINUTE: list[Pair] = [
    ("9:01:00", "1", 0, 2, 1, 2),
    ("9:01:00", "3", 5, 0, 2, 1),
    ("9:02:00", "1", 0, 3, 1, 3),
    ("9:03:00", "9", 9, 1, 3, 4),
]
EACH_MESSAGE: list[Pair] = [
    ("9:00:10", "1", 0, 2, 1, 2),
    ("9:00:59", "3", 5, 0, 2, 1),
    ("9:01:01", "1", 0, 3, 1, 3),
    ("9:02:01", "9", 9, 1, 3, 4),
]


def shown(clock: str, pairs: list[dict[str, Any]]) -> list[Pair]:
    """Return sent pairs as EACH_MINUTE and EACH_MESSAGE have them."""
    names = ("join_key", "orders_value", "shipments_cost", "left_position", "right_position")
    return sorted((clock, *(row[name] for name in names)) for row in pairs)
