"""Session windows for the lakehouse: early and exact sessions on Spark and Delta Lake."""

from sessionlake.sessions.windows import SessionWindows

__all__ = ["SessionWindows", "__version__"]
__version__ = "0.1.0"
