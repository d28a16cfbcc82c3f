"""The changelogs of windows by count. Light: who only reads tables imports it."""

from sessionlake.warehouse.changelog import NumberedChangelog

SLICES = NumberedChangelog("slice")
"""The tables of the state that windows are made of."""
WINDOWS = NumberedChangelog("window", (SLICES,))
"""The tables of windows that were sent."""
