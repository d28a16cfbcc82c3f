"""Which commands a config will accept after a change: the refusals of `backfill` and `rebuild` that the config alone decides.

The jobs raise them, and `run` and `plan` name a command only if none of them holds.
"""

from collections.abc import Mapping
from typing import Any

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.warehouse.dialects import DAY_US

_AHEAD_US = parse_duration("1 hour")
"""How far after the watermark a cut is at least: the stream may run on until it is started with the new config."""


def refuses_source(config: Config, missing: str) -> str | None:
    """Return why `backfill` can't read events from the source again; None if it can.

    `missing` says what the archive lacks of them.
    """
    if config.event.unique_us is not None:
        return (
            f"event.unique_for: is set, and the source has duplicates, which only the archive lacks, and {missing}; "
            "set pipeline.archive = true: then events of later batches can be backfilled"
        )
    if not config.source.entry.can_replay:
        return f"{config.source.AT}.kind: {config.source.kind!r} can't be read again, and {missing}"
    return None


def kept_before(config: Config, bound: Mapping[str, Any], watermark_us: int | None) -> Mapping[str, Any] | None:
    """Return the keys of the section of `before` that keeps what the tables are bound to, as `plan --write` adds it; None if none can help.

    Its time is the first midnight that is an hour or more after the watermark.
    """
    if watermark_us is None:
        return None
    return config.section.kept_before(bound, -(-(watermark_us + _AHEAD_US) // DAY_US) * DAY_US)


def must_name_origin(config: Config) -> bool:
    """Whether `rebuild` needs the source of its events named, because a topic may have dropped some."""
    return bool(config.topics)


def rebuild_command(config: Config) -> str:
    """Return the command that makes the tables again, with the option without which it is refused."""
    return f"sessionlake rebuild CONFIG --warehouse NEW{' --from-topic' if must_name_origin(config) else ''}"
