"""Which sessions a batch moves into quarantine (docs/rules.md, rule 162); the rule as SQL is in `operators/sessions/thresholds.py`."""

import numpy as np

from sessionlake.columnar.arrays import Bools
from sessionlake.columnar.axis import Axis
from sessionlake.columnar.records import Records
from sessionlake.operators.sessions.thresholds import Quarantine

_MINUTE_US = 60_000_000


def above(limits: Quarantine, sessions: Records) -> Bools:
    """Say which sessions are above a threshold."""
    length = sessions.end - sessions.start
    out = np.zeros(len(sessions), bool)
    if limits.max_events is not None:
        out |= sessions.count > limits.max_events
    if limits.max_rate is not None:
        events, per_us = limits.max_rate
        out |= sessions.count * float(per_us) > float(events) * np.maximum(length, _MINUTE_US)
    if limits.max_length_us is not None:
        out |= length > limits.max_length_us
    return out


def crossing(limits: Quarantine, changed: Records, before: Records) -> int:
    """Count the changed sessions that are above a threshold while nothing that they were made of was; `before` are those that are gone.

    Changed sessions come ascending by key and start.
    """
    now = above(limits, changed)
    if not now.any():
        return 0
    old = before.take(np.flatnonzero(above(limits, before)))
    if len(old):
        # The changed session that holds the start of an old one, if one does, is the last that begins at or before it.
        at = Axis(changed.codes, changed.start).find(old.codes, old.start + 1) - 1
        holds = (at >= 0) & (changed.codes[at] == old.codes) & (changed.end[at] >= old.start)
        now[at[holds]] = False
    return int(now.sum())
