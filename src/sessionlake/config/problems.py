"""Problems of a config: all of them, each in one line with its place."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from sessionlake.errors import ConfigError, SessionlakeError

_KEY = re.compile(r"([a-z][\w-]*(?:\.[\w-]+)*): (?=\S)")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    key: str | None
    """The key or section, as in "session.gap"; None if the problem is about none."""
    message: str
    """The problem, and a remedy."""
    file: str | None = None
    """The config as it was named; None of one that is no file."""
    line: int | None = None
    column: int | None = None

    @classmethod
    def of(cls, text: str) -> "Problem":
        """Return the problem in an error's text."""
        key = _KEY.match(text)
        return cls(None, text) if key is None else cls(key[1], text[key.end() :])

    def __str__(self) -> str:
        """Return the line of it: `clicks.toml:14: session.gap: ...`."""
        at = [part for part in (self.file, self.line) if part is not None]
        return "".join((":".join(map(str, at)) + ": " if at else "", f"{self.key}: " if self.key else "", self.message))

    def fields(self) -> dict[str, Any]:
        """Return it as JSON values; those that are not known are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class InvalidConfigError(ConfigError):
    """A config with one or more problems; its text has a line for each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def problems_of(error: Exception) -> list[Problem]:
    """Return the problems of an error: itself, or all problems of an invalid config."""
    return list(error.problems) if isinstance(error, InvalidConfigError) else [Problem.of(str(error))]


class Gathered:
    """Problems as they are found, one check after the other."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    @contextmanager
    def one(self) -> Iterator[None]:
        """Catch the error of a check, and add its problems."""
        try:
            yield
        except SessionlakeError as error:
            self.add(*problems_of(error))

    def add(self, *problems: Problem) -> None:
        """Add problems, except those that are known already."""
        self.problems += [problem for problem in problems if problem not in self.problems]

    def add_other(self, problem: Problem) -> None:
        """Add a problem, unless one of the same key or of its section is known: it would follow from that."""
        if not any(known.key is not None and f"{problem.key}.".startswith(f"{known.key}.") for known in self.problems):
            self.add(problem)

    def raise_any(self) -> None:
        """Raise InvalidConfigError if there is a problem."""
        if self.problems:
            raise InvalidConfigError(self.problems)
