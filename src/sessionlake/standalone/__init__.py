"""Windows and joins without Spark: one message at a time, with their state in a directory (docs/standalone.md)."""

from typing import TYPE_CHECKING, Any

from sessionlake.errors import BackPressureError
from sessionlake.standalone.aggregator import WindowedAggregator
from sessionlake.standalone.emit import Emit
from sessionlake.standalone.join import JoinWindow

if TYPE_CHECKING:
    from sessionlake.standalone.pipeline import Pipeline

__all__ = ["BackPressureError", "Emit", "JoinWindow", "Pipeline", "WindowedAggregator"]


def __getattr__(name: str) -> Any:
    # Windows and joins are built from arguments: only a pipeline needs the modules that read configs.
    if name == "Pipeline":
        from sessionlake.standalone.pipeline import Pipeline  # noqa: PLC0415

        return Pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
