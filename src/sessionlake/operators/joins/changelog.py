"""The changelog of joins. Light: who only reads tables imports it."""

from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import TimedChangelog

JOINS = TimedChangelog(
    "join", time="join_time", numbers=("left_position", "right_position"), state=(schemas.JOIN_MESSAGES,)
)
"""A pair has the later of its messages' times."""
