"""The windows of stored slices, sent or not: the answers to queries of a store."""

import numpy as np
import pyarrow as pa

from sessionlake.operators.shared.windowing.emission import EARLY, Firing
from sessionlake.operators.shared.windowing.slices import Pairs, SliceAxis, Windows
from sessionlake.operators.windows.rules import grid_windows, sent_windows
from sessionlake.operators.windows.spec import Grid, TimeWindows
from sessionlake.store.slices import Slices

_ALWAYS = -2
"""A batch before all: every slice has changed since."""


def windows_starting(windows: TimeWindows, slices: Slices, first_us: int, last_us: int) -> Windows:
    """Return the windows with starts from first to last, both inclusive, that have an event, ascending by (code, start).

    Slices are ascending by (code, start); those of the windows must be among them, and of sliding windows the one right before each.
    """
    # Windows of a firing have their ends in (low, high].
    span = windows.span_us
    firing = Firing(EARLY, first_us + span - 1, last_us + span, _ALWAYS)
    pairs = Pairs(slices.codes, slices["start"])
    asked = grid_windows(windows, pairs, firing) if isinstance(windows, Grid) else pairs
    return sent_windows(windows, slices, SliceAxis(slices), asked, firing)


def have_events_at_end(slices: Slices, windows: Windows) -> pa.Array:
    """Say of sliding windows whether an event lies at their very end."""
    return pa.array(slices["start"][windows.high - 1] == windows.end - 1)


def one_key(slices: Slices) -> Slices:
    """Return slices of one key, ascending by start."""
    order = np.argsort(slices["start"], kind="stable")
    return Slices(np.zeros(len(slices), np.int64), slices.head, slices.state).take(order)
