"""Errors that a user can cause. Each is one line: what, which value, what to do. Its exit code names its type."""

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum

_LONGEST_SENT = 300
"""Characters of an error that go to other systems."""


class ExitCode(IntEnum):
    """The exit codes of commands. Scripts and DAGs decide by these numbers, never by a message.

    They are a public interface, and stay as they are (docs/commands.md). dags/ has a copy, because it imports nothing
    of this package.
    """

    DONE = 0
    FAILED = 1
    """A failure that is not ours: a disk, Java, the network."""
    USER = 2
    """The user's to mend: arguments, config, source, or the state of the pipeline."""
    NOT_NEEDED = 3
    """There was nothing to do, by the config."""
    BUSY = 4
    """Another process does this on the pipeline already; it goes on, and this one has done nothing."""
    FENCED = 5
    """Another driver or run took over while this one worked; the work that this one had not committed is lost."""
    NO_BATCHES = 6
    """The pipeline has no batches yet, and the command has nothing to work on."""
    TRY_AGAIN = 7
    """Something was in the way that passes by itself: a store held by a process that ends, writers that came first each time, a broker that is down."""
    FOUND = 8
    """The work is done, and its verdict is no: `quality` found failures that `--fail-on` names; `forget` found a key, or a place that it can't search."""


class SessionlakeError(Exception):
    """Base of every error that is reported in one line; `exit_code` is that of the command."""

    exit_code = ExitCode.USER


class ConfigError(SessionlakeError):
    """A setting is missing, unknown or contradicts another one."""


class MissingJavaError(ConfigError):
    """No Java is on this machine's PATH, or in JAVA_HOME."""


class SourceError(SessionlakeError):
    """The source can't be read or lacks a column that the config names."""


class UnreachableError(SourceError):
    """The source's broker does not answer; it may in a moment."""

    exit_code = ExitCode.TRY_AGAIN


class AwaitedError(SourceError):
    """The source is the results of a pipeline that has no batches yet."""

    exit_code = ExitCode.NO_BATCHES

    @classmethod
    def of(cls, at: str, name: str) -> "AwaitedError":
        """Return the error of a key that names the pipeline."""
        return cls(f"{at}: {name!r} has no batches yet; run that pipeline")


class MissingColumnsError(SourceError):
    """The source lacks columns; the error says which, and which it has."""

    def __init__(self, message: str, missing: Sequence[str] = (), known: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.missing, self.known = tuple(missing), tuple(known)


class StoreError(SessionlakeError):
    """The local store directory can't be used, or a shard holds more than a task can take."""


class MissingExtraError(SessionlakeError):
    """A command or a setting needs a package that is missing, as one of sessionlake's extras brings, or is of a version that does not fit."""


class StoreHeldError(StoreError):
    """A process has the store open; it may be free in a moment."""

    exit_code = ExitCode.TRY_AGAIN


class DiskFullError(StoreError):
    """The disk of a store has too little room."""

    exit_code = ExitCode.FAILED


class CorruptionError(StoreError):
    """A store's bytes differ from those written: the store is removed, and restored from the tables."""


class LayoutError(CorruptionError):
    """A store's bytes are of another release's format: as good as damaged for this one."""


class NullKeyError(StoreError):
    """A call on a store of `sessionlake.stores` lacks the key that it needs."""


class StoreClosedError(StoreError):
    """A call on a store of `sessionlake.stores` that is closed."""


class UnsupportedOperationError(StoreError):
    """A store of `sessionlake.stores` has not got this method: another kind of store has."""


class NoSuchElementError(StoreError):
    """The next key of an iterator that has no more rows."""


class NotNeededError(SessionlakeError):
    """A run had nothing to do; it says so, and has not failed."""

    exit_code = ExitCode.NOT_NEEDED


class LockedError(NotNeededError):
    """Another driver on this machine runs the pipeline."""

    exit_code = ExitCode.BUSY


class BackPressureError(SessionlakeError):
    """The receiver of the standalone API's outputs takes no more; `taken` says whether the message is in the state nevertheless."""

    def __init__(self, message: str, *, taken: bool = False) -> None:
        super().__init__(message)
        self.taken = taken


class NotKeptError(SessionlakeError):
    """The standalone API was asked for messages, and keeps none."""


class LakeError(SessionlakeError):
    """The warehouse can't be read without Spark, or a query over it is wrong."""


class PipelineStateError(SessionlakeError):
    """Config, checkpoint and changelog don't belong together."""


class NoBatchesError(PipelineStateError):
    """The pipeline has not run yet. A failure all the same: a wrong path of the warehouse looks like this too."""

    exit_code = ExitCode.NO_BATCHES


class AggregateError(SessionlakeError):
    """A user's aggregate raised an error."""


class BadEventsError(AggregateError):
    """A user's aggregate raised an error at some events; `reasons` has why, by the number of the event."""

    def __init__(self, message: str, reasons: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


class FencedError(SessionlakeError):
    """Another process committed under our name: a driver our batch id, a job its run's step. Ours must not."""

    exit_code = ExitCode.FENCED


class OverdueError(SessionlakeError):
    """A batch took longer than `pipeline.batch_timeout`, and was cancelled."""

    exit_code = ExitCode.FAILED


class JobError(SessionlakeError):
    """A job got arguments or a pipeline that it can't work with."""


class OvertakenError(JobError):
    """A run of a job was fenced by a later one, or by an erasure; its remaining work is left to the next run."""

    exit_code = ExitCode.FENCED


class BusyError(JobError):
    """Another run of the job is at work."""

    exit_code = ExitCode.BUSY


class ContendedError(JobError):
    """Other writers changed the same files or tables, each time that this one tried."""

    exit_code = ExitCode.TRY_AGAIN


class MetricsError(SessionlakeError):
    """The config's target of metrics or lineage can't be used."""


QUOTED, CUT = r"'[^']*'|\"[^\"]*\"|`[^`]*`", "'...'"
"""A quoted part of a message, as a regular expression, and the text that stands in its place where values must not be shown."""


def without_values(error: BaseException) -> str:
    """Return an error's type and first line without quoted parts, which may be values from the data, or paths.

    >>> without_values(ValueError("key 'ann' is wrong"))
    "ValueError: key '...' is wrong"
    """
    text = re.sub(QUOTED, CUT, first_line(error))
    return f"{type(error).__name__}: {text[:_LONGEST_SENT]}"


def first_line(error: object) -> str:
    """Return the first line of an error's message, or its type: Spark's and Java's have a stack trace below."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 (a user's error may be unable to say itself)
        lines = []
    # Spark's messages may end in a semicolon, as do ours before a remedy.
    return lines[0].rstrip("; ") if lines else type(error).__name__


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return, in brackets, which of the known names was probably meant; nothing if none is similar.

    >>> did_you_mean("gapp", ["gap", "grace"])
    " (did you mean 'gap'?)"
    """
    import difflib  # noqa: PLC0415 (of errors alone)

    close = difflib.get_close_matches(name, known, n=1) or [word for word in known if len(name) > 2 and name in word]
    return f" (did you mean {close[0]!r}?)" if close else ""
