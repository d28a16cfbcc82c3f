"""Errors a user can cause. Each ends as one line: what, which value, what to do."""

import re
from collections.abc import Mapping

_LONGEST_SENT = 300
"""Characters of an error that go to other systems."""


class SessionlakeError(Exception):
    """Base of every error that is reported in one line and exits with code 2."""

    exit_code = 2


class ConfigError(SessionlakeError):
    """A setting is missing, unknown or contradicts another one."""


class SourceError(SessionlakeError):
    """The source can't be read or lacks a column that the config names."""


class StoreError(SessionlakeError):
    """The local store directory can't be used, or a shard holds more than a task can take."""


class MissingExtraError(SessionlakeError):
    """A command or a setting needs a package that is installed with one of sessionlake's extras."""


class StoreHeldError(StoreError):
    """A process has the store open; it may be free in a moment."""


class CorruptionError(StoreError):
    """A store's bytes are not what was written: the store is removed, and restored from the tables."""


class LayoutError(CorruptionError):
    """A store's bytes are of another release's format: as good as damaged for this one."""


class NotNeededError(SessionlakeError):
    """A run had nothing to do; it says so, and has not failed."""


class LockedError(NotNeededError):
    """Another driver on this machine runs the pipeline."""


class LakeError(SessionlakeError):
    """The warehouse can't be read without Spark, or a query over it is wrong."""


class PipelineStateError(SessionlakeError):
    """Config, checkpoint and changelog don't belong together."""


class AggregateError(SessionlakeError):
    """A user's aggregate raised an error."""


class BadEventsError(AggregateError):
    """A user's aggregate raised an error at some events; `reasons` has why, by the number of the event."""

    def __init__(self, message: str, reasons: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


class FencedError(SessionlakeError):
    """Another process committed under our name: a driver our batch id, a job its run's step. Ours must not."""


class JobError(SessionlakeError):
    """A scheduled job was asked for what it can't do."""


class MetricsError(SessionlakeError):
    """Metrics or lineage can't go where the config says."""


def without_values(error: BaseException) -> str:
    """Return an error's type and first line, what stands in quotes left out: it may be a value from the data, or a path."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "'...'", first_line(error))
    return f"{type(error).__name__}: {text[:_LONGEST_SENT]}"


def first_line(error: object) -> str:
    """Return the first line of an error's message, or its type: Spark's and Java's have a stack trace below."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
