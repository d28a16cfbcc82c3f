"""Pairs of harnesses of sessions, one of which expires."""

from __future__ import annotations

from typing import Any

from tests.operators.sessions.strategies import (
    Config,
)
from tests.oracle.model import Session
from tests.oracle.session_expiry import ExpiringSessions

RULES = ("ttl", "expires_at", "where")


def known(session: Session) -> bool:
    return any(dict(atom.columns).get("v") is not None for atom in session.atoms)


def expiring_pair(config: Config, rule: str, pattern: str, age: int, every: int, *, stream: bool) -> Any:
    """Return the section [ttl] of a rule, and the model of it."""
    interval = f"interval {age} microseconds"
    section, expired, expiry = {
        "ttl": ({"ttl": f"{age} us"}, lambda s, at: s.end + age <= at, lambda s: s.end + age),
        "expires_at": (
            {"expires_at": f"if(most is null, null, session_end + event_count * {interval})"},
            lambda s, at: known(s) and s.end + s.event_count * age <= at,
            lambda s: s.end + s.event_count * age,
        ),
        "where": (
            {"where": f"event_count % 2 = 1 and session_end < now() - {interval} and session_key <> 'b'"},
            lambda s, at: s.event_count % 2 == 1 and s.end < at - age and s.key != "b",
            None,
        ),
    }[rule]
    clock = "stream" if stream else "wall"
    model = ExpiringSessions(config.model(), expired, every, stream=stream, lag_from=expiry)
    return {"pattern": pattern, **section, "every": f"{every} us", "clock": clock}, model
