"""Secrets that a config refers to and does not hold: `${env:NAME}` and `${file:PATH}` in its texts.

A config keeps the references. Their values are looked up when they are used, and never printed.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from sessionlake.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
_SHORTEST_HIDDEN = 4
"""Characters: a shorter value can't be taken out of a text without making it unreadable."""
_revealed: dict[str, str] = {}
"""Each value that was looked up in this process, and the reference that stands for it."""


def has_reference(text: str) -> bool:
    """Say whether a text refers to a secret."""
    return _REFERENCE.search(text) is not None


def with_absolute_files(text: str, directory: Path) -> str:
    """Return a text whose `${file:PATH}` are absolute; relative ones are relative to `directory`."""

    def absolute(match: re.Match[str]) -> str:
        return f"${{file:{directory / match[2]}}}" if match[1] == "file" and match[2] else match[0]

    return _REFERENCE.sub(absolute, text)


def reveal(where: str, text: str) -> str:
    """Return a text with the values of its references; ConfigError, which names `where` and no value, if one has none.

    A file's last line break is no part of its value.
    """

    def value_of(match: re.Match[str]) -> str:
        value = _of_environment(where, match[2]) if match[1] == "env" else _of_file(where, match[2])
        keep_hidden(value, match[0])
        return value

    return _REFERENCE.sub(value_of, text)


def reveal_all(where: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts by name with the values of their references; an error names `where` and the text's name."""
    return {name: reveal(f"{where}.{name}", text) for name, text in texts.items()}


def keep_hidden(value: str, shown: str = "***") -> None:
    """Let `hide` show another text for a value: for a part of a secret that others may quote alone, such as the password of a URL."""
    if len(value) >= _SHORTEST_HIDDEN:
        _revealed[value] = shown


def hide(text: str) -> str:
    """Return a text in which each value that was revealed is its reference again."""
    for value in sorted(_revealed, key=len, reverse=True):
        text = text.replace(value, _revealed[value])
    return text


def _of_environment(where: str, name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ConfigError(f"{where}: the environment has no {name!r}; set it, or correct the name in ${{env:...}}")
    return value


def _of_file(where: str, path: str) -> str:
    try:
        value = Path(path).read_text().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise ConfigError(
            f"{where}: {path!r} can't be read ({reason}); correct the path in ${{file:...}}, or let this user read it"
        ) from error
    if not value:
        raise ConfigError(f"{where}: {path!r} is empty; write the value into it")
    return value
