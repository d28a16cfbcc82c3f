"""The options of Spark's sources that bound a batch by files and bytes."""

from sessionlake.config.source import SourceSection

SMALL_RECORDS, SMALL_PARTITIONS, SMALL_BYTES = 5_000, 16, 512 << 10
"""Up to this many records of this many partitions, or bytes of files, a batch is small (`Source.is_small`).

On two cores, four shards and batches of ten events one task takes 0.7 of the CPU of two stages; of 10,000 events 0.8. With more
cores two stages are sooner done with so many events, hence the lower bound."""
_ALL_FILES = 1 << 30


def limits_of(source: SourceSection, *, everything_at_once: bool) -> dict[str, int]:
    """Return the options of a source section, or those of one batch of everything."""
    if everything_at_once:
        return {"maxFilesPerTrigger": _ALL_FILES}
    limits = {"maxFilesPerTrigger": source.files_per_batch, "maxBytesPerTrigger": source.bytes_per_batch}
    return {name: limit for name, limit in limits.items() if limit is not None}
