"""Packages that only some commands need: what is said where one is missing."""

from importlib.util import find_spec

from sessionlake.errors import MissingExtraError


def has_module(module: str) -> bool:
    """Return whether `module` could be imported, without importing more of it than its parent packages."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def require_extra(what: str, module: str, extra: str) -> None:
    """Raise MissingExtraError, with the command that installs `extra`, where `what` can't be done without `module`."""
    if not has_module(module):
        raise MissingExtraError(f"{what}: Python module {module!r} is missing; run: pip install 'sessionlake[{extra}]'")
