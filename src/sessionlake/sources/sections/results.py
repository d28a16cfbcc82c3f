"""The keys of a source that is the results of another pipeline."""

from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError

_KEYS = {"kind", "of", "rows"}


def check(source: SourceSection) -> None:
    """Raise a ConfigError for keys that are missing or that don't go together."""
    if not source.of:
        raise ConfigError(f"{source.AT}.of: is missing; write the name of a pipeline, or the path of its config")
    if source.rows is None:
        raise ConfigError(
            f"{source.AT}.rows: is missing; write 'final', for rows that events can't change any more, or 'changes', for all of them"
        )
    # A batch is what has changed in front since the batch before, in the types that the tables there have: nothing else is chosen.
    foreign = next((name for name in type(source).model_fields if name in source.model_fields_set - _KEYS), None)
    if foreign is not None:
        raise ConfigError(f"{source.AT}.{foreign}: does not go with kind 'results'; remove it")
