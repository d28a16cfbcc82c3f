"""The place of an error in SQL: the character of the text in the config at which it begins. Needs no parser."""

from dataclasses import dataclass

from sessionlake.errors import ConfigError

_SHOWN = 40
"""The number of characters of the text, from the place on, in an error."""


class SqlError(ConfigError):
    """An error in SQL of a config."""

    def __init__(self, message: str, told: str = "") -> None:
        super().__init__(message)
        self.told = told
        """The message without the setting and the place."""


def sql_error(setting: str, told: str, place: str = "") -> SqlError:
    """Return the error of a setting; `place` as `at_character` returns it."""
    return SqlError(f"{setting}: {told}{place}", told)


@dataclass(frozen=True)
class Origin:
    """A text in a config, the source of SQL."""

    text: str
    pieces: tuple[tuple[int, int], ...] = ((0, 0),)
    """Of each piece of the text the characters at which it begins in the SQL and in the text, from 0 on; in the order of the SQL."""

    def place(self, at: int) -> str:
        """Return the place of a character of the SQL, from 0 on, as an error ends with it; of one before all pieces that of the last piece.

        >>> Origin("sum(price) filter (where b)", ((10, 25), (17, 4))).place(10)
        " (at character 26: 'b)')"
        """
        begin, there = next((piece for piece in reversed(self.pieces) if piece[0] <= at), self.pieces[-1])
        return at_character(self.text, there + max(at - begin, 0))


def at_character(text: str, at: int) -> str:
    """Return the place of a character of a text, from 0 on, as an error ends with it.

    >>> at_character("a > 1 and foo(b)", 10)
    " (at character 11: 'foo(b)')"
    """
    rest = text[at:]
    shown = rest if len(rest) <= _SHOWN else f"{rest[:_SHOWN]}..."
    return f" (at character {at + 1}: {shown!r})"
