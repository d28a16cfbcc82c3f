"""Errors as the user of a command reads them: the lines, and the exit code; errors of other software are explained by their cause."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sessionlake.config.file import ConfigFile
from sessionlake.config.problems import InvalidConfigError
from sessionlake.errors import ConfigError, ExitCode, SessionlakeError, SourceError, first_line
from sessionlake.extras import require_versions

_LONGEST = 400
"""Characters of somebody else's message in a line of ours."""
_NO_TEXT = "Java gave no text for it"


@dataclass(frozen=True)
class Cause:
    """The meaning of signs in an error's text, and a remedy."""

    signs: tuple[str, ...]
    what: str
    remedy: str
    users: bool = False
    """Whether it is the user's to mend, and no failure of the machine."""


CAUSES = (
    Cause(
        ("No space left on device", "Disk quota exceeded", "There is not enough space on the disk"),
        "a disk is full",
        "nothing is lost: make room for pipeline.warehouse, pipeline.store and the temporary directory (TMPDIR, SPARK_LOCAL_DIRS), then run it again",
    ),
    Cause(
        ("java.lang.OutOfMemoryError", "insufficient memory for the Java Runtime"),
        "Java has too little memory",
        "give the driver more (spark-submit --driver-memory, or spark.executor.memory on a cluster), or make batches smaller (source.max_files_per_batch, source.max_bytes_per_batch, source.max_offsets_per_batch) and start once with `sessionlake run --replan`",
    ),
    Cause(
        (
            "MemoryError",
            "ArrowMemoryError",
            "malloc of size",
            "Cannot allocate memory",
            "Python worker exited unexpectedly",
        ),
        "a Python process has too little memory, or was killed",
        "give the machine more, raise pipeline.shards, or make batches smaller (source.max_files_per_batch, source.max_bytes_per_batch, source.max_offsets_per_batch) and start once with `sessionlake run --replan`",
    ),
    Cause(
        (
            "Answer from Java side is empty",
            "Py4JNetworkError",
            "Error while sending or receiving",
            "SparkContext was shut down",
            _NO_TEXT,
        ),
        "Spark's Java process has ended",
        "look above for its last words (or into the kernel's log, if it was killed for memory), then run it again",
    ),
    Cause(
        ("Too many open files",),
        "this user may not open as many files",
        "raise `ulimit -n`, or lower pipeline.shards",
    ),
    Cause(
        ("Corruption: ", "IO error: While open a file for random read"),
        "a store is damaged",
        "delete the directory that is named, it is restored from the tables; look after the disk",
    ),
    Cause(
        (
            "_delta_log",
            "DELTA_MISSING_TRANSACTION_LOG",
            "DELTA_LOG_FILE_NOT_FOUND",
            "DELTA_TRUNCATED_TRANSACTION_LOG",
            "DELTA_STATE_RECOVER_ERROR",
            "JsonEOFException",
            "JsonParseException",
        ),
        "a Delta log can't be read",
        "a commit is damaged, missing or half copied: bring the file back from a backup, or from the store's older versions",
    ),
    Cause(
        (
            "Permission denied",
            "AccessControlException",
            "AccessDenied",
            "Operation not permitted",
            "Read-only file system",
            "403 Forbidden",
        ),
        "this user lacks a right",
        "give the right to the user that runs this, or correct the path",
    ),
    Cause(
        ("PATH_NOT_FOUND",),
        "a path that the config or an option names is not there",
        "create it or correct the path",
        users=True,
    ),
    Cause(
        ("FileNotFoundException", "FileNotFoundError", "No such file or directory"),
        "a file or directory is gone",
        "bring it back or correct the path",
    ),
)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n((?:[ \t].*\n)+)(\S.*)")
_CALL = re.compile(r"An error occurred while calling \S+\.\s*: ")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_NOT_THE_USERS = ("/site-packages/", "/pyspark/", "/dist-packages/", "<frozen", "pyspark.zip")
_BRIDGES = ("py4j.", "pyspark.errors", "Py4JJavaError")


def explain(error: BaseException) -> str:
    """Return one line: the cause if it is known, otherwise the error's type and first line; both name a remedy."""
    texts = list(_texts(error))
    if (found := _cause(texts)) is not None:
        cause, detail = found
        return f"{cause.what} ({detail}); {cause.remedy}"
    said = _raised_in_python("\n".join(texts)) or _cut(_message(texts[-1]))
    return (
        f"{said}; run it again with `sessionlake --traceback ...` (or SESSIONLAKE_TRACEBACK=1) to see the whole trace"
    )


def is_users(error: BaseException) -> bool:
    """Say whether an error that is not ours is the user's to mend."""
    found = _cause(list(_texts(error)))
    return found is not None and found[0].users


def _cause(texts: Sequence[str]) -> tuple[Cause, str] | None:
    """Return the cause that an error's messages have signs of, and the line that has them."""
    for cause in CAUSES:
        for text in texts:
            detail = _line_with(text, cause.signs)
            if detail:
                return cause, detail
    return None


def _texts(error: BaseException) -> Iterator[str]:
    """Yield the messages of an error and of its causes, the innermost first."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    for one in reversed(chain):
        try:
            yield f"{type(one).__name__}: {one}"
        except Exception as gone:  # noqa: BLE001 (Java's errors ask Java for their text, and it may have ended)
            yield f"{type(one).__name__}: {_NO_TEXT} ({type(gone).__name__}: {gone})"


def _line_with(text: str, signs: tuple[str, ...]) -> str | None:
    """Return the first line that contains one of the signs, cut at the start of its message."""
    for line in text.splitlines():
        if any(sign in line for sign in signs) and not line.lstrip().startswith(("at ", "File ")):
            return _cut(re.sub(r"^(?:Caused by: |: )?(?:[\w$]+\.){2,}(?=\w+(?:Exception|Error)\b)", "", line.strip()))
    return None


def _message(text: str) -> str:
    """Return the first line that says something: not one that names a call of Py4J or begins a traceback."""
    *calls, said = _CALL.split(text)
    blocks = _TRACEBACK.findall(said)
    return first_line(said if calls or not blocks else blocks[-1][1])


def _raised_in_python(text: str) -> str | None:
    """Return a worker's Python error and its line in the user's code, from a traceback inside of Java's message."""
    found = [block for block in _TRACEBACK.finditer(text) if not block[2].startswith(_BRIDGES)]
    if not found:
        return None
    frames = [frame for frame in _FRAME.findall(found[-1][1]) if not any(part in frame[0] for part in _NOT_THE_USERS)]
    where = f" at {frames[-1][0]}:{frames[-1][1]} in {frames[-1][2]}" if frames else ""
    return f"{_cut(found[-1][2])}{where}"


def _cut(text: str) -> str:
    one = " ".join(text.split())
    return one if len(one) <= _LONGEST else f"{one[:_LONGEST]}..."


def error_lines(error: Exception, config: str | None) -> tuple[list[str], int]:
    """Return an error's lines and its exit code; `config` is the file that the command was given, if it was given one."""
    if isinstance(error, ImportError):
        error = _of_versions(error)
    if isinstance(error, InvalidConfigError):
        return [str(problem) for problem in error.problems], error.exit_code
    if isinstance(error, ConfigError | SourceError) and config is not None:
        return [with_place(str(error), config)], error.exit_code
    if isinstance(error, SessionlakeError):
        return [str(error)], error.exit_code
    return [explain(error)], ExitCode.USER if is_users(error) else ExitCode.FAILED


def _of_versions(error: ImportError) -> Exception:
    """Return the error about the packages' versions, if that is why an import failed."""
    try:
        require_versions()
        require_versions("spark")
    except SessionlakeError as wrong:
        return wrong
    return error


def with_place(line: str, config: str) -> str:
    """Return a line about a key of a config with the file and the line that the key stands in, if it does."""
    with suppress(ConfigError):
        return ConfigFile.read(config).placed(line)
    return line
