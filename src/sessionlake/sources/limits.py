"""The options of Spark's sources that bound a batch by files and bytes."""

from sessionlake.config.source import SourceSection

_ALL_FILES = 1 << 30


def limits_of(source: SourceSection, *, everything_at_once: bool) -> dict[str, int]:
    """Return the options of a source section, or those of one batch of everything."""
    if everything_at_once:
        return {"maxFilesPerTrigger": _ALL_FILES}
    limits = {"maxFilesPerTrigger": source.files_per_batch, "maxBytesPerTrigger": source.bytes_per_batch}
    return {name: limit for name, limit in limits.items() if limit is not None}
