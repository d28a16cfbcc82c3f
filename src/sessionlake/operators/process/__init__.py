"""Processors: a user's class on the rows of each key, with state and timers (docs/process.md)."""

from sessionlake.operators.process.api import Context, Keys, KeyValueStore, Processor, Timer, Timers

__all__ = ["Context", "KeyValueStore", "Keys", "Processor", "Timer", "Timers"]
