"""Packages that commands need, and the errors if one is missing or has an unsuitable version."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sessionlake.errors import MissingExtraError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OF_SPARK = ("pyspark", "delta-spark")
"""Packages of which any patch release of the required one fits."""
_MODULES = {"delta-spark": "delta"}
"""Modules that are called otherwise than their package."""


def has_module(module: str) -> bool:
    """Return whether `module` could be imported, without importing more of it than its parent packages."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def require_extra(what: str, module: str, extra: str) -> None:
    """Raise MissingExtraError, with the command that installs `extra`, if `what` can't be done without `module`."""
    if not has_module(module):
        raise MissingExtraError(f"{what}: Python module {module!r} is missing; run: pip install 'sessionlake[{extra}]'")
    require_versions(extra=extra)


def require_versions(extra: str = "") -> None:
    """Raise MissingExtraError, with the command that mends it, if packages are not as sessionlake's own metadata asks for.

    The packages are those that every command needs, or instead those of an extra, for example "spark".
    """
    if told := lacking(extra):
        raise MissingExtraError(told)
    wrong = {wanted: told for wanted in _wanted(extra) if (told := _misfit(wanted)) is not None}
    if wrong:
        install = " ".join(f"'{wanted.name}{_range(wanted)}'" for wanted in wrong)
        raise MissingExtraError(f"{'; '.join(wrong.values())}; run: pip install {install}")


def lacking(extra: str) -> str | None:
    """Return the names of an extra's missing packages with the command that installs them, as one line; None if none is missing."""
    missing = [wanted.name for wanted in _wanted(extra) if extra and not _is_there(wanted)]
    if not missing:
        return None
    *first, last = missing
    names = f"{', '.join(first)} and {last} are" if first else f"{last} is"
    return f"{names} not installed; run: pip install 'sessionlake[{extra}]'"


def _wanted(extra: str) -> Iterator["Requirement"]:
    """Yield sessionlake's requirements from its metadata, or with an extra that extra's; nothing if it is not installed."""
    for wanted in _requirements():
        for_extra = wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})
        if for_extra == bool(extra) and (wanted.marker is None or wanted.marker.evaluate({"extra": extra})):
            if wanted.name != "sessionlake":
                yield wanted
            for other in wanted.extras if wanted.name == "sessionlake" else ():
                yield from _wanted(other)


@cache
def _requirements() -> tuple["Requirement", ...]:
    from packaging.requirements import Requirement  # noqa: PLC0415 (help must not wait for it)

    return tuple(map(Requirement, _metadata("sessionlake", "Requires-Dist")))


def _misfit(wanted: "Requirement") -> str | None:
    """Return the problem of an installed package; None if it fits, or if its version is not known."""
    found = _version(wanted.name)
    if found is None:
        return None if _is_there(wanted) else f"{wanted.name} is missing, sessionlake needs {_version_range(wanted)}"
    fits = f"{found}.".startswith(_minor(wanted)) if wanted.name in OF_SPARK else wanted.specifier.contains(found, True)
    return None if fits else f"{wanted.name} {found} is installed, sessionlake needs {_version_range(wanted)}"


def _is_there(wanted: "Requirement") -> bool:
    """Say whether a package is installed in any version, also without metadata."""
    return _version(wanted.name) is not None or has_module(_MODULES.get(wanted.name, wanted.name.replace("-", "_")))


def _minor(wanted: "Requirement") -> str:
    """Return the begin of all versions that fit a pinned one: "4.1." of "==4.1.1"."""
    return str(wanted.specifier).removeprefix("==").rpartition(".")[0] + "."


def _version_range(wanted: "Requirement") -> str:
    return f"{_minor(wanted)}x" if wanted.name in OF_SPARK else _range(wanted).removeprefix("==")


def _range(wanted: "Requirement") -> str:
    """Return the range as people write it, its lower end first."""
    return ",".join(sorted(map(str, wanted.specifier), reverse=True))


def _version(package: str) -> str | None:
    """Return the version of the package that would be imported; None if it is not known."""
    if package == "pyspark":
        # PYTHONPATH may put that of SPARK_HOME before the installed one, and it has no metadata.
        spec = find_spec(package)
        file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
        if file is not None and file.is_file():
            return file.read_text().rpartition("=")[2].strip(" \n\"'")
    return next(iter(_metadata(package, "Version")), None)


def _metadata(package: str, field: str) -> list[str]:
    """Return the values of a field of an installed package's metadata; nothing if there is none.

    importlib.metadata's own functions parse the whole file, with the package's page: for all packages that takes a
    tenth of a second.
    """
    try:
        text = distribution(package).read_text("METADATA") or ""
    except PackageNotFoundError:
        return []
    head, _, _ = text.partition("\n\n")
    return re.findall(rf"^{field}: (.+)$", head, re.MULTILINE)
