"""Session windows for the lakehouse: early and exact sessions on Spark and Delta Lake."""

from typing import TYPE_CHECKING, Any

from sessionlake.config import Config, load_config
from sessionlake.sessions.windows import SessionWindows

if TYPE_CHECKING:
    from sessionlake.views import read_sessions

__all__ = ["Config", "SessionWindows", "__version__", "load_config", "read_sessions"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Spark is imported only when it is asked for: tests of windows and aggregates need none.
    if name == "read_sessions":
        from sessionlake.views import read_sessions

        return read_sessions
    raise AttributeError(name)
