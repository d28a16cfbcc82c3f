"""Batch sessionization by DuckDB's window functions: the second, independent reading of "the final table"."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

Row = dict[str, Any]

EVENTS = pa.schema([("key", pa.string()), ("time_us", pa.int64()), ("v", pa.float64()), ("id", pa.string())])
PARTIALS = pa.schema(
    [
        ("key", pa.string()),
        ("start_us", pa.int64()),
        ("end_us", pa.int64()),
        ("event_count", pa.int64()),
        ("v", pa.float64()),
        ("batch_id", pa.int64()),
        ("own_gap", pa.int64()),
    ]
)
REMOVED = pa.schema([("key", pa.string()), ("start_us", pa.int64()), ("end_us", pa.int64()), ("batch_id", pa.int64())])

# LAG runs over the distinct times: over the events themselves a tie would put equal rows in an arbitrary order,
# harmless for the sessions but not for anything that is numbered along the way.
EVENTS_SQL = """
WITH times AS (SELECT DISTINCT key, time_us FROM events),
marked AS (
    SELECT key, time_us,
           CASE WHEN time_us - LAG(time_us) OVER (PARTITION BY key ORDER BY time_us) <= $gap THEN 0 ELSE 1 END opens
    FROM times
),
numbered AS (
    SELECT key, time_us, SUM(opens) OVER (PARTITION BY key ORDER BY time_us) AS session_no FROM marked
),
placed AS (SELECT * FROM events JOIN numbered USING (key, time_us)),
counted AS (SELECT key, session_no, v, COUNT(*) AS n FROM placed GROUP BY ALL),
modes AS (SELECT key, session_no, ARG_MIN(v, {'n': -n, 'v': v}) AS usual FROM counted GROUP BY ALL)
SELECT key,
       MIN(time_us) AS start_us,
       MAX(time_us) AS end_us,
       COUNT(*) AS event_count,
       SUM(v) AS total,
       MIN(v) AS least,
       MAX(v) AS most,
       AVG(v) AS mean,
       ARG_MIN(v, {'t': time_us, 'id': id, 'v': v}) AS earliest,
       ARG_MAX(v, {'t': time_us, 'id': id, 'v': v}) AS latest,
       COUNT(DISTINCT v) AS kinds,
       MEDIAN(v) AS middle,
       QUANTILE_CONT(v, 0.9) AS upper,
       ARG_MIN(v, {'t': time_us, 'id': id, 'v': v}) AS some,
       ANY_VALUE(usual) AS usual,
       ARG_MIN(id, {'v': -v, 't': time_us, 'id': id}) AS dearest,
       ARG_MIN(id, {'v': v, 't': time_us, 'id': id}) AS cheapest
FROM placed JOIN modes USING (key, session_no)
GROUP BY key, session_no
ORDER BY key, start_us
"""

# A partial opens a session when it starts more than a gap after the largest end before it. Ties on start are safe: of
# two partials with one start the second is at distance 0 from the first whatever their ends.
PARTIALS_SQL = """
WITH live AS (
    SELECT * FROM partials AS p
    WHERE NOT EXISTS (
        SELECT 1 FROM removed AS r
        WHERE r.key = p.key AND p.batch_id < r.batch_id AND p.start_us BETWEEN r.start_us AND r.end_us
    )
),
reached AS (
    SELECT *,
           MAX(end_us)
               OVER (PARTITION BY key ORDER BY start_us, end_us ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
               AS reach_us
    FROM live
),
numbered AS (
    SELECT *,
           SUM(CASE WHEN start_us - reach_us <= $gap THEN 0 ELSE 1 END)
               OVER (PARTITION BY key ORDER BY start_us, end_us ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
               AS session_no
    FROM reached
)
SELECT key,
       MIN(start_us) AS start_us,
       MAX(end_us) AS end_us,
       SUM(event_count)::BIGINT AS event_count,
       SUM(v) AS total,
       MIN(v) AS least,
       MAX(v) AS most
FROM numbered
GROUP BY key, session_no
ORDER BY key, start_us
"""

# With limits a partial is open until its end + gap, or until the last microsecond of its cell. A session is the union of such
# stretches that meet: it begins with a partial that no earlier one reaches, and grows as long as one begins within it.
LIMITED_SQL = """
WITH RECURSIVE live AS (
    SELECT *, row_number() OVER () AS n FROM partials AS p
    WHERE NOT EXISTS (
        SELECT 1 FROM removed AS r
        WHERE r.key = p.key AND p.batch_id < r.batch_id AND p.start_us BETWEEN r.start_us AND r.end_us
    )
),
opened AS (
    SELECT *,
           least(end_us + coalesce(own_gap, $gap),
                 CASE WHEN $length IS NULL THEN 1::BIGINT << 61
                      ELSE (floor((end_us - $offset) / $length)::BIGINT + 1) * $length + $offset - 1 END) AS until_us
    FROM live
),
grown AS (
    SELECT key, start_us, max(until_us) AS until_us FROM opened AS p
    WHERE NOT EXISTS (
        SELECT 1 FROM opened AS q WHERE q.key = p.key AND q.start_us < p.start_us AND q.until_us >= p.start_us
    )
    GROUP BY key, start_us
    UNION
    SELECT g.key, g.start_us, max(p.until_us)
    FROM grown AS g JOIN opened AS p ON p.key = g.key AND p.start_us BETWEEN g.start_us AND g.until_us
    GROUP BY g.key, g.start_us
),
sessions AS (SELECT key, start_us, max(until_us) AS until_us FROM grown GROUP BY key, start_us)
SELECT s.key,
       s.start_us,
       MAX(p.end_us) AS end_us,
       SUM(event_count)::BIGINT AS event_count,
       SUM(v) AS total,
       MIN(v) AS least,
       MAX(v) AS most
FROM sessions AS s JOIN opened AS p ON p.key = s.key AND p.start_us BETWEEN s.start_us AND s.until_us
GROUP BY s.key, s.start_us
ORDER BY s.key, s.start_us
"""


class SqlOracle:
    """One DuckDB connection, reused because opening one costs more than a query."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1})

    def sessionize_events(self, events: list[Row], gap_us: int) -> list[Row]:
        """Return key, start_us, end_us, event_count, total, least, most, mean, earliest, latest, kinds, middle, upper of column v.

        And some, usual, and the dearest and the cheapest id.
        """
        self._connection.register("events", pa.Table.from_pylist(events, schema=EVENTS))
        return self._rows(EVENTS_SQL, gap_us)

    def sessionize_partials(self, partials: list[Row], removed: list[Row], gap_us: int) -> list[Row]:
        """Return the sessions of all partials less those that lay in a session removed in a LATER batch than theirs."""
        self._connection.register("partials", pa.Table.from_pylist(partials, schema=PARTIALS))
        self._connection.register("removed", pa.Table.from_pylist(removed, schema=REMOVED))
        return self._rows(PARTIALS_SQL, gap_us)

    def sessionize_limited(
        self, partials: list[Row], removed: list[Row], gap_us: int, length_us: int | None, offset_us: int
    ) -> list[Row]:
        """Return what `sessionize_partials` does, of partials that may have gaps of their own and are cut at cells' ends."""
        self._connection.register("partials", pa.Table.from_pylist(partials, schema=PARTIALS))
        self._connection.register("removed", pa.Table.from_pylist(removed, schema=REMOVED))
        return self._rows(LIMITED_SQL, gap_us, length=length_us, offset=offset_us)

    def _rows(self, query: str, gap_us: int, **more: int | None) -> list[Row]:
        return self._connection.sql(query, params={"gap": gap_us, **more}).to_arrow_table().to_pylist()
