"""The directory of the jars: the folder in SESSIONLAKE_JARS, otherwise one in the user's cache directory, and no other."""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sessionlake.errors import ConfigError
from sessionlake.jars.fetch import Ivy, OnBytes, fetch
from sessionlake.jars.java import pyspark_home
from sessionlake.jars.lists import LISTS, JarList, load_list

JARS_VARIABLE = "SESSIONLAKE_JARS"


def find_jars(name: str = "spark") -> list[Path]:
    """Return the jars of a list: of $SESSIONLAKE_JARS, else of the cache, fetched if they are not there.

    The folder that the variable names holds the package's list `spark`, and its other lists each in a folder of their name
    below; it is the user's own choice and taken as it is. ConfigError if it holds none, or they can't be fetched.
    """
    named = os.environ.get(JARS_VARIABLE)
    if not named or name not in LISTS:
        return sorted(cached(load_list(name)).glob("*.jar"))
    folder = Path(named) if name == "spark" else Path(named, name)
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise ConfigError(
            f"{JARS_VARIABLE}: {str(folder)!r} holds no jars; fill it with `sessionlake jars {name} --to {named}`, or unset the variable"
        )
    return jars


def cache_directory() -> Path:
    """Return the directory of all lists: $XDG_CACHE_HOME/sessionlake/jars, by default below ~/.cache."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (given if given.is_absolute() else Path.home() / ".cache") / "sessionlake" / "jars"
    except RuntimeError as error:
        raise ConfigError(
            f"jars: this user has no home directory; set XDG_CACHE_HOME, or {JARS_VARIABLE} to a folder that holds the jars"
        ) from error


def cached(jars: JarList, *, ivy: Ivy | None = None) -> Path:
    """Return the cache's folder with exactly these jars; they are fetched first if it is missing or incomplete.

    If several processes call this, one fetches and the others wait for it. The folder appears whole, by a rename.
    """
    cache = cache_directory()
    folder = cache / jars.folder
    if jars.complete(folder):
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(cache / f"{jars.folder}.lock", jars):
            if not jars.complete(folder):
                _make(jars, folder, ivy)
    except OSError as error:
        raise ConfigError(
            f"jars: {str(error.filename or cache)!r} can't be written ({error.strerror}); set XDG_CACHE_HOME to a directory "
            f"that this user may write, or {JARS_VARIABLE} to one that holds the jars"
        ) from error
    return folder


def copy_to(jars: JarList, folder: Path) -> None:
    """Copy a list's jars to a folder that holds no others, for machines without a network; ConfigError if it does."""
    source = cached(jars)
    try:
        _copy(jars, source, folder)
    except OSError as error:
        raise ConfigError(
            f"jars: {str(error.filename or folder)!r} can't be written ({error.strerror}); pass another folder"
        ) from error


def _copy(jars: JarList, source: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    others = sorted(file.name for file in folder.glob("*.jar") if file.name not in jars.files)
    if others:
        raise ConfigError(f"jars: {str(folder)!r} holds other jars ({others[0]}); remove them, or pass another folder")
    for name in jars.files:
        half = folder / f"{name}.half"
        shutil.copyfile(source / name, half)
        half.replace(folder / name)


def _make(jars: JarList, folder: Path, ivy: Ivy | None) -> None:
    pyspark_home()  # its Ivy fetches the jars, and it compiles against them: say so first if it is missing
    work = folder.with_name(f"{folder.name}.work")
    work.mkdir(exist_ok=True)
    with _progress(jars) as on_bytes:
        whole = fetch(jars, work, on_bytes, ivy=ivy)
    if folder.exists():
        folder.replace(work / "damaged")
    whole.replace(folder)
    shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _locked(path: Path, jars: JarList) -> Iterator[None]:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"sessionlake: another process fetches the jars for {jars.name}; waiting for it\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _progress(jars: JarList) -> Iterator[OnBytes]:
    """Show on standard error how much is there: a bar on a terminal, else one line."""
    # Imported only for a download: a command that finds its jars in the cache must not wait for rich.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    console, total = Console(stderr=True, highlight=False), sum(jar.bytes for jar in jars.jars)
    said = f"fetching {len(jars.jars)} jars for {jars.name} from Maven Central, once"
    if not console.is_terminal:
        console.print(f"sessionlake: {said} ({total / 1e6:.1f} MB)", markup=False, soft_wrap=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(said, total=total)
        yield lambda done: progress.update(task, completed=min(done, total))
