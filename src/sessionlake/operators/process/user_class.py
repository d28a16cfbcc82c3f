"""Users' processors: how a class is loaded, and how its errors are described."""

import traceback
from collections.abc import Generator, Iterable
from types import GeneratorType
from typing import Any

from sessionlake.errors import ConfigError
from sessionlake.operators.process.api import Context, Processor
from sessionlake.user_code import NOT_THEIRS, described, file_of, load, short

_LONGEST = 300
_NAME = "process.class"


def load_class(path: str, directory: str | None) -> type[Processor]:
    """Return the class of an import path module:Class; ConfigError with file and line if it can't be had.

    `directory` is pipeline.code.
    """
    try:
        found: Any = load(path, directory)
    except NOT_THEIRS:
        raise
    except BaseException as error:
        raise ConfigError(
            f"{_NAME}: {path!r} can't be loaded ({described(error)}); write 'package.module:Class', of an installed package or one in pipeline.code"
        ) from error
    name = path.partition(":")[2]
    if not (isinstance(found, type) and issubclass(found, Processor)):
        raise ConfigError(
            f"{_NAME}: {path!r} is no subclass of Processor; write `class {name}(Processor):`, with Processor of sessionlake.operators.process"
        )
    return found


def made(path: str, of: type[Processor]) -> Processor:
    """Return an object of a processor's class; ConfigError with file and line if its constructor raises."""
    try:
        return of()
    except NOT_THEIRS:
        raise
    except BaseException as error:
        raise ConfigError(
            f"{_NAME}: {path}() raised {described(error)}; give it a constructor without arguments"
        ) from error


def opened(path: str, processor: Processor, context: Context) -> Processor:
    """Open a processor, and return it; ConfigError with file and line if that raises."""
    try:
        processor.open(context)
    except NOT_THEIRS:
        raise
    except BaseException as error:
        raise ConfigError(f"{_NAME}: {path}.open raised {described(error)}; correct the class") from error
    return processor


def failure(path: str, processor: Processor, error: BaseException, rows: Iterable[Any] | None) -> str:
    """Return why a call of a processor failed, with file and line; `rows` is the value that the call returned.

    If a row that a generator has sent is wrong, the line is that of its `yield`.
    """
    own = file_of(type(processor))
    inside = any(frame.filename == own for frame in traceback.extract_tb(error.__traceback__))
    place = f" at {short(own)}"
    if not inside and isinstance(rows, GeneratorType) and rows.gi_frame is not None:
        place = f" at {short(own)}:{rows.gi_frame.f_lineno}"
        _close(rows)
    return f"class {path} raised {described(error, own)}{'' if inside else place}"[:_LONGEST]


def _close(rows: Generator[Any, Any, Any]) -> None:
    """End a generator; what it raises at its end is no second failure."""
    try:
        rows.close()
    except NOT_THEIRS:
        raise
    except BaseException:  # noqa: BLE001, S110 (a user's code raises what it likes)
        pass
