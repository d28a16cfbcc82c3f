"""The changelog of sessions, and the names of their views and numbers. Light: who only reads tables imports it."""

from dataclasses import dataclass

from sessionlake.warehouse.changelog import Changelog


@dataclass(frozen=True)
class SessionChangelog(Changelog):
    """The changelog of sessions."""

    @property
    def read_by(self) -> str:
        """The end: sessions close in its order, not in that of their starts."""
        return self.end


STORED = SessionChangelog("stored_session")
"""The tables of the state if sessions are sent by policy: every session as it is."""
SESSIONS = SessionChangelog("session", (STORED,))
"""The tables of sessions; with [emit] of those that were sent."""
QUARANTINED, QUARANTINED_KEYS = "sessions_quarantined", "quarantined_keys"
"""The views of quarantined sessions: the sessions, and their number for each key."""
_RULES = {
    "spark": "array_join(array_sort(collect_set(rule)), ', ')",
    "duckdb": "string_agg(distinct rule, ', ' order by rule)",
    "trino": "array_join(array_sort(array_agg(distinct rule)), ', ')",
}


def quarantined_keys_sql(engine: str) -> str:
    """Return the query of the keys that have sessions in quarantine, over the view of quarantined sessions; `engine` is spark, duckdb or trino."""
    return (
        "select session_key, count(*) as sessions, cast(sum(event_count) as bigint) as events, "
        f"min(session_start) as first_start, max(session_end) as last_end, {_RULES[engine]} as rules "
        f"from {QUARANTINED} group by session_key"
    )
