"""Windows and joins without Spark: one message at a time, with their state in a directory (docs/standalone.md)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sessionlake.errors import BackPressureError

if TYPE_CHECKING:
    from sessionlake.standalone.aggregator import WindowedAggregator
    from sessionlake.standalone.emit import Emit
    from sessionlake.standalone.join import JoinWindow
    from sessionlake.standalone.pipeline import Pipeline

__all__ = ["BackPressureError", "Emit", "JoinWindow", "Pipeline", "WindowedAggregator"]

_PLACES = {
    "Emit": "sessionlake.standalone.emit",
    "JoinWindow": "sessionlake.standalone.join",
    "Pipeline": "sessionlake.standalone.pipeline",
    "WindowedAggregator": "sessionlake.standalone.aggregator",
}


def __getattr__(name: str) -> Any:
    # A name is imported when it is used: only a pipeline needs the modules that read configs, and `Emit` needs no store.
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_PLACES]
