"""What every peer computes, and DuckDB's answer to it: the yardstick of one machine, and what all results are compared with.

A result is (key, start, end, count, total), times in milliseconds, the resolution of Kafka and Flink; a join's are the two times and the two
amounts of a pair. Where results are sent when their windows close, those count that close before the end of the events,
less the grace: what is sent at a finite stream's end differs from peer to peer.
"""

from collections.abc import Callable
from dataclasses import dataclass

MINUTE_MS = 60_000
GRACE_MS = 25 * MINUTE_MS
"""More than any event is behind: nothing is late for any peer."""
DAY_MS = 1440 * MINUTE_MS


@dataclass(frozen=True)
class Workload:
    """One operator on the events."""

    name: str
    label: str
    sql: Callable[["Workload", str], str]
    """Its results of a relation of events."""
    size_ms: int = 0
    step_ms: int = 0
    """Advance of hopping windows, gap of sessions."""
    messages: int = 0
    users: int = 1_000_000
    batches: int = 8
    stored: int = 0
    """How many windows are stored before the events begin, as many a batch as it has users."""
    grace_ms: int = GRACE_MS
    retention: str = "1 day"
    final: bool = False
    """Whether results are sent once, when their windows close; else with each change."""
    compare: str = "rows"
    """What of the results is compared: `rows`, or `counts` only, where the order of events within a key is not defined."""


def _sessions(workload: Workload, events: str) -> str:
    return f"""
        WITH marked AS (
            SELECT key, ms, amount, ms - lag(ms) OVER of_key > {workload.step_ms} AS begins
            FROM {events} WINDOW of_key AS (PARTITION BY key ORDER BY ms)
        ), numbered AS (
            SELECT key, ms, amount, count(*) FILTER (begins) OVER of_key AS session
            FROM marked WINDOW of_key AS (PARTITION BY key ORDER BY ms ROWS UNBOUNDED PRECEDING)
        )
        SELECT key, min(ms) AS start, max(ms) AS "end", count(*) AS count, sum(amount)::BIGINT AS total
        FROM numbered GROUP BY key, session"""


def _windows(workload: Workload, events: str) -> str:
    size, step = workload.size_ms, workload.step_ms or workload.size_ms
    return f"""
        SELECT key, start, start + {size} AS "end", count(*) AS count, sum(amount)::BIGINT AS total
        FROM (SELECT key, amount, unnest(range(ms - ms % {step} - {size - step}, ms + 1, {step})) AS start FROM {events})
        GROUP BY key, start"""


def _sliding(workload: Workload, events: str) -> str:
    """Return the windows that end with an event: SQL's RANGE PRECEDING."""
    return f"""
        SELECT DISTINCT key, ms - {workload.size_ms} AS start, ms AS "end", count(*) OVER w AS count, (sum(amount) OVER w)::BIGINT AS total
        FROM {events} WINDOW w AS (PARTITION BY key ORDER BY ms RANGE BETWEEN {workload.size_ms} PRECEDING AND CURRENT ROW)"""


def _sliding_with_exits(workload: Workload, events: str) -> str:
    """Return Kafka's sliding windows: also those that begin after an event, where they hold any."""
    size = workload.size_ms
    return f"""{_sliding(workload, events)}
        UNION
        SELECT * FROM (
            SELECT key, ms + 1 AS start, ms + 1 + {size} AS "end", count(*) OVER w AS count, (sum(amount) OVER w)::BIGINT AS total
            FROM {events} WINDOW w AS (PARTITION BY key ORDER BY ms RANGE BETWEEN 1 FOLLOWING AND {size + 1} FOLLOWING)
        ) WHERE count > 0"""


def _count(workload: Workload, events: str) -> str:
    return f"""
        SELECT key, 0 AS start, 0 AS "end", count(*) AS count, sum(amount)::BIGINT AS total
        FROM (SELECT key, amount, (row_number() OVER (PARTITION BY key ORDER BY "offset") - 1) // {workload.messages} AS number FROM {events})
        GROUP BY key, number HAVING count(*) = {workload.messages}"""


def _join(workload: Workload, events: str) -> str:
    return f"""
        SELECT l.key, l.ms AS start, r.ms AS "end", l.amount AS count, r.amount AS total
        FROM (SELECT * FROM {events} WHERE "offset" % 2 = 0) AS l JOIN (SELECT * FROM {events} WHERE "offset" % 2 = 1) AS r
        ON l.key = r.key AND l.ms BETWEEN r.ms - {workload.size_ms} AND r.ms + {workload.size_ms}"""


_ALL = (
    Workload("sessions", "sessions, gap 30 min", _sessions, step_ms=30 * MINUTE_MS),
    Workload("tumbling", "tumbling 1 h, update mode", _windows, size_ms=60 * MINUTE_MS),
    Workload(
        "stored",
        "the same beside 10M windows",
        _windows,
        size_ms=60 * MINUTE_MS,
        stored=10_000_000,
        grace_ms=DAY_MS,
        retention="2 days",
    ),
    Workload(
        "hopping", "hopping 1 h / 5 min, final", _windows, size_ms=60 * MINUTE_MS, step_ms=5 * MINUTE_MS, final=True
    ),
    Workload("sliding", "sliding 10 min, final", _sliding, size_ms=10 * MINUTE_MS, final=True),
    Workload("sliding_exits", "the same, and after events", _sliding_with_exits, size_ms=10 * MINUTE_MS, final=True),
    Workload("count", "count 100 per key", _count, messages=100, users=10_000, compare="counts"),
    Workload("join", "join 10 min, half + half", _join, size_ms=10 * MINUTE_MS),
)
WORKLOADS = {workload.name: workload for workload in _ALL}
