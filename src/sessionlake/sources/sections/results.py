"""The keys of a source that is the results of another pipeline."""

from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError


def check(source: SourceSection) -> None:
    """Raise a ConfigError for keys that are missing."""
    if not source.of:
        raise ConfigError(f"{source.AT}.of: is missing; write the name of a pipeline, or the path of its config")
    if source.rows is None:
        raise ConfigError(
            f"{source.AT}.rows: is missing; write 'final', for rows that events can't change any more, or 'changes', for all of them"
        )
