"""The changelogs of processors. Light: who only reads tables imports it."""

from sessionlake.warehouse.changelog import KeyedChangelog, TimedChangelog

STATES = KeyedChangelog("process_state", time="touched_at")
"""The tables of the keys' states, which stores are restored from."""
OUTPUTS = TimedChangelog(
    "output",
    (STATES,),
    time="output_time",
    numbers=("position", "ordinal"),
    counts=("timers", "timers_failed"),
)
"""The tables of the rows that a processor sends."""
