"""Test windows and aggregates in milliseconds, without Spark."""

from sessionlake.operators.windows.definition import HoppingWindows, SlidingWindows, TumblingWindows
from sessionlake.operators.windows.section import EmitSection
from sessionlake.testing.harness import Output, SessionizerHarness
from sessionlake.testing.windows import WindowHarness, WindowOutput

__all__ = [
    "EmitSection",
    "HoppingWindows",
    "Output",
    "SessionizerHarness",
    "SlidingWindows",
    "TumblingWindows",
    "WindowHarness",
    "WindowOutput",
]
