"""Test windows, joins, tables and aggregates in milliseconds, without Spark."""

from sessionlake.operators.counts.definition import CountSessions, CountWindows, SlidingCountWindows
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.operators.windows.definition import HoppingWindows, SlidingWindows, TumblingWindows
from sessionlake.testing.configured import ConfigOutput, Harness
from sessionlake.testing.harness import Output, SessionizerHarness
from sessionlake.testing.joins import JoinHarness, JoinOutput
from sessionlake.testing.tables import TableHarness, TableOutput
from sessionlake.testing.windows import WindowHarness, WindowOutput

__all__ = [
    "ConfigOutput",
    "CountSessions",
    "CountWindows",
    "EmitSection",
    "Harness",
    "HoppingWindows",
    "JoinHarness",
    "JoinOutput",
    "Output",
    "SessionizerHarness",
    "SlidingCountWindows",
    "SlidingWindows",
    "TableHarness",
    "TableOutput",
    "TumblingWindows",
    "WindowHarness",
    "WindowOutput",
]
