"""A pipeline of sessions and one of groups behind it, and their events."""

import json
import random
from pathlib import Path

HOUR = 3600
CLICKS = """\
[source]
kind = "files"
path = "events"
format = "json"

[event]
key = "user"
time = "at"
time_unit = "s"

[session]
gap = "30 minutes"
grace = "1 hour"
retention = "4 hours"

[aggregates]
revenue = "sum(price)"
longest = "max(price)"
"""
DAYS = """\
[source]
kind = "results"
of = "clicks"
rows = "changes"

[event]
key = ["hour", "big"]

[event.columns]
hour = "date_trunc('hour', session_end)"
big = "event_count > 2"

[group]

[aggregates]
sessions = "count()"
revenue = "sum(revenue)"
longest = "max(longest)"
"""


def write(root: Path, number: int) -> None:
    """Write a file: two hours of events of five users, from one hour before the last file's end on; some come late."""
    rng = random.Random(number)
    base = 1_700_000_000 + number * HOUR
    rows = [
        {"user": f"u{rng.randrange(5)}", "at": base + rng.randrange(2 * HOUR), "price": rng.randrange(100) / 8}
        for _ in range(40)
    ]
    rows += [{"user": "late", "at": base - 3 * HOUR, "price": 1.5}] if number > 3 else []
    (root / "events" / f"{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
