"""Windows and joins without Spark: one message at a time, with their state in a directory (docs/standalone.md)."""

from sessionlake.errors import BackPressureError
from sessionlake.standalone.aggregator import WindowedAggregator
from sessionlake.standalone.emit import Emit
from sessionlake.standalone.join import JoinWindow

__all__ = ["BackPressureError", "Emit", "JoinWindow", "WindowedAggregator"]
