"""The keys of a source that is a Delta table."""

from sessionlake.config.source import SourceSection, require_path
from sessionlake.errors import ConfigError


def check(source: SourceSection) -> None:
    """Raise a ConfigError for keys that are missing or that don't go together."""
    require_path(source)
    if source.format is not None:
        raise ConfigError(f"{source.AT}.format: {source.format!r} goes with kind 'files' only; remove it")
