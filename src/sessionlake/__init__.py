"""Windows, sessions, joins and tables for the lakehouse: early and exact, on Spark and Delta Lake."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sessionlake.define import names

if TYPE_CHECKING:
    from sessionlake.config.load import Config, load_config
    from sessionlake.config.project import Project, load_project
    from sessionlake.define.names import *  # noqa: F403 (the classes of sections and aggregates)
    from sessionlake.define.pipeline import Pipeline
    from sessionlake.engine.session import spark
    from sessionlake.operators.counts.definition import CountSessions, CountWindows, SlidingCountWindows
    from sessionlake.operators.process.api import Processor
    from sessionlake.operators.sessions.windows import SessionWindows
    from sessionlake.operators.windows.definition import HoppingWindows, SlidingWindows, TumblingWindows
    from sessionlake.preflight.check import check
    from sessionlake.reading import read, read_joins, read_sessions, read_table, read_windows
    from sessionlake.standalone.emit import Emit

__all__ = [
    "Config",
    "CountSessions",
    "CountWindows",
    "Emit",
    "HoppingWindows",
    "Pipeline",
    "Processor",
    "Project",
    "SessionWindows",
    "SlidingCountWindows",
    "SlidingWindows",
    "TumblingWindows",
    "__version__",
    "check",
    "load_config",
    "load_project",
    "read",
    "read_joins",
    "read_sessions",
    "read_table",
    "read_windows",
    "spark",
]
__all__ += names.__all__
__version__ = "0.2.0"

_PLACES = {
    "Config": "sessionlake.config.load",
    "CountSessions": "sessionlake.operators.counts.definition",
    "CountWindows": "sessionlake.operators.counts.definition",
    "Emit": "sessionlake.standalone.emit",
    "HoppingWindows": "sessionlake.operators.windows.definition",
    "Pipeline": "sessionlake.define.pipeline",
    "Processor": "sessionlake.operators.process.api",
    "Project": "sessionlake.config.project",
    "SessionWindows": "sessionlake.operators.sessions.windows",
    "SlidingCountWindows": "sessionlake.operators.counts.definition",
    "SlidingWindows": "sessionlake.operators.windows.definition",
    "TumblingWindows": "sessionlake.operators.windows.definition",
    "check": "sessionlake.preflight.check",
    "load_config": "sessionlake.config.load",
    "load_project": "sessionlake.config.project",
    "read": "sessionlake.reading",
    "read_joins": "sessionlake.reading",
    "read_sessions": "sessionlake.reading",
    "read_table": "sessionlake.reading",
    "read_windows": "sessionlake.reading",
    "spark": "sessionlake.engine.session",
}


def __getattr__(name: str) -> Any:
    # A name is imported when it is used: the command line's help needs no Arrow, tests of windows need no Spark.
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name[:1].isupper():
        return getattr(names, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
