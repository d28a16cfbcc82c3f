"""The names of files of versions: `<when it was made>-<version>-<hashes of the settings>` and the kind of file."""

from collections.abc import Iterable

FILE, REFUSED = ".arrow", ".refused"
"""The ends of the names of a version's rows, and of the reason for which a version is not used."""
UNFINISHED = ".tmp"
"""The end of the name of a file that a task writes, or that one has left which was killed."""
MARK = ".forget"
"""The end of the name of a file that marks another one, which holds an erased key: the driver removes both if no batch runs."""

AGAIN = ".again"
"""The end of the name of a file that marks another one, which was made again for a batch of before; it has the time of that,
in microseconds."""


def marked(names: Iterable[str]) -> list[str]:
    """Return the files among the names in a folder that are marked.

    >>> marked(["1.arrow", "1.arrow.forget", "2.arrow"])
    ['1.arrow']
    """
    return [name.removesuffix(MARK) for name in names if name.endswith(MARK)]


def made_us(name: str) -> int:
    """Return when a file was made, microseconds.

    >>> made_us("0000000000000007-12-5c1f0a2b.arrow")
    7
    """
    return int(name.partition("-")[0])


def version_of(name: str) -> str:
    """Return the version of the table.

    >>> version_of("0000000000000007-12-5c1f0a2b.arrow")
    '12'
    """
    return name.split("-")[1]


def settings_of(name: str) -> str:
    """Return the hashes of the settings.

    >>> settings_of("0000000000000007-12-5c1f0a2b77ab3d9e.arrow")
    '5c1f0a2b77ab3d9e'
    """
    return name.split("-")[2].partition(".")[0]
