"""The changelogs of windows by time. Light: who only reads tables imports it."""

from sessionlake.warehouse.changelog import Changelog

SLICES = Changelog("slice")
"""The tables of the state that windows are made of, if those are not it."""
WINDOWS = Changelog("window", (SLICES,))
"""The tables of windows that were sent."""
