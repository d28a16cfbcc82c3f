"""`watermark t delay of interval 1 hour`: Spark's clause, which sqlglot does not read. It means the same as a comment `-- watermark t 1 hour`."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import Token, TokenType
from sqlglot.dialects import Spark

_AMOUNTS = (TokenType.NUMBER, TokenType.STRING)


@dataclass(frozen=True)
class Delay:
    """A clause."""

    start: int
    end: int
    """The numbers of its first character, and of the character after it."""
    column: str
    length: str


def delays_in(text: str) -> Iterator[Delay]:
    """Yield the clauses of a query.

    >>> list(delays_in("select 1 from e watermark e.t delay of interval 1 hour 5 minutes group by a"))
    [Delay(start=16, end=64, column='e.t', length='1 hour 5 minutes')]
    """
    tokens = Spark().tokenize(text)
    for at, token in enumerate(tokens):
        if _is(token, "watermark"):
            delay = _delay(text, tokens[at:])
            if delay is not None:
                yield delay


def without_delays(text: str) -> str:
    """Return a query with blanks in place of its clauses, so that all else stays in place."""
    for delay in delays_in(text):
        clause = text[delay.start : delay.end]
        text = text[: delay.start] + "".join("\n" if c == "\n" else " " for c in clause) + text[delay.end :]
    return text


def _delay(text: str, tokens: list[Token]) -> Delay | None:
    """Return the clause at the beginning of tokens; None for another use of the word, or a column that is no name."""
    at = next((number for number, token in enumerate(tokens[:8]) if _is(token, "delay")), None)
    if at is None or at + 2 >= len(tokens) or not _is(tokens[at + 1], "of") or not _is(tokens[at + 2], "interval"):
        return None
    names, end = tokens[1:at], at + 3
    dots = [token.token_type == TokenType.DOT for token in names]
    while end + 1 < len(tokens) and tokens[end].token_type in _AMOUNTS:
        end += 2
    if end == at + 3 or dots != [bool(number % 2) for number in range(len(names))] or not names:
        return None
    length = " ".join(token.text for token in tokens[at + 3 : end])
    return Delay(tokens[0].start, tokens[end - 1].end + 1, "".join(text[t.start : t.end + 1] for t in names), length)


def _is(token: Token, word: str) -> bool:
    return token.text.lower() == word and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
