"""Users' code, named by import path: how it is loaded, and how its errors are described."""

import traceback
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from sessionlake.code_directories import imported
from sessionlake.errors import ConfigError, first_line

NOT_THEIRS = (KeyboardInterrupt, MemoryError)
"""What passes through users' code and is no error of it. All else is, also a `sys.exit` of a library under it."""
_PACKAGE = f"{Path(__file__).parent}/"


def load(path: str, directory: str | None) -> Any:
    """Return what an import path module:name names; raise whatever the import raises.

    `directory` is pipeline.code. Pipelines with other directories have other modules, whatever their names.
    """
    module, _, name = path.partition(":")
    return getattr(imported(module, directory or None), name)


def file_of(of: type) -> str:
    """Return the file that defines a class, or the empty text; its module's name alone may be that of several files."""
    methods = (each for each in vars(of).values() if isinstance(each, FunctionType))
    files = (each.__globals__.get("__file__") for each in methods if each.__globals__.get("__name__") == of.__module__)
    return next(files, None) or ""


def load_function(at: str, path: str, directory: str | None) -> Callable[..., object]:
    """Return the function of an import path; ConfigError if it can't be had. `at` is the key in the config."""
    try:
        found = load(path, directory)
    except NOT_THEIRS:
        raise
    except BaseException as error:
        raise ConfigError(
            f"{at}: {path!r} can't be loaded ({described(error)}); write 'package.module:function', of an installed package or one in pipeline.code"
        ) from error
    if not callable(found):
        raise ConfigError(f"{at}: {path!r} can't be called; name a function, `def on_rows(rows, delivery):`")
    return cast("Callable[..., object]", found)


def raised(error: BaseException) -> str:
    """Return the type of an error and where it was raised, without its text, which may have a value of the data."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_loading(frame.filename)]
    if not frames:  # it was called wrongly, or is none of Python's
        return f"{type(error).__name__}: {first_line(error)}" if isinstance(error, TypeError) else type(error).__name__
    return f"{type(error).__name__} at {short(frames[-1].filename)}:{frames[-1].lineno}"


def described(error: BaseException, own: str = "") -> str:
    """Return an error in one line with the file and line that raised it: of the file `own`, if the error passed it."""
    text = f"{type(error).__name__}: {first_line(error)}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_loading(frame.filename)]
    in_own = [frame for frame in frames if frame.filename == own]
    if not frames or (own and not in_own):
        return text
    frame = (in_own or frames)[-1]
    return f"{text} at {short(frame.filename)}:{frame.lineno}"


def short(filename: str) -> str:
    """Return the name of a file without its folder."""
    return filename.rpartition("/")[2]


def _is_loading(filename: str) -> bool:
    """Say whether a file is one of this package or of the import system, which only call the user's code."""
    return filename.startswith(_PACKAGE) or "importlib" in filename
