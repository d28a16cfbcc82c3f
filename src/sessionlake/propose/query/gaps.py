"""The gap of `session_window`: one duration, or a CASE that gives each event its own."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import TokenType

from sessionlake.propose.query.brackets import Tokens
from sessionlake.propose.query.fields import Fields
from sessionlake.propose.query.inputs import duration_of
from sessionlake.propose.query.live import interval
from sessionlake.propose.query.words import Piece, Query, QueryError, shown

_SUPPORTED = (
    "write one duration, or a CASE over conditions on the event with a duration in quotes in each THEN and in ELSE"
)


@dataclass(frozen=True)
class Gap:
    """The gap of sessions."""

    gap_us: int
    by: str | None = None
    """SQL of an event's own gap."""
    longest_us: int = 0
    """The longest of all, with `by`."""


def gap_of(query: Query, fields: Fields, tokens: Tokens, time: str) -> Gap:
    """Return the gap of sessions of events with a column `time`; QueryError for one that sessions can't have."""
    if tokens[0].token_type != TokenType.CASE:
        if tokens[0].token_type not in (TokenType.STRING, TokenType.INTERVAL):
            raise query.refusal("gap", tokens, f"is no duration; {_SUPPORTED}")
        fields.places["session.gap"] = query.place(tokens[0])
        return Gap(duration_of(query, tokens, "gap"))
    values = {words[0].start: (word, duration_of(query, words, "gap")) for word, words in _values(query, tokens)}
    default = next((micros for word, micros in values.values() if word == TokenType.ELSE), None)
    if default is None:
        told = "a CASE without ELSE gives some events no gap, and Spark leaves these out; add ELSE, and their condition to WHERE"
        raise QueryError("gap", f"{shown(query.said(tokens))!r}: {told}", query.place(tokens[0]))
    longest = max(micros for _, micros in values.values())
    by = _case(query, fields, tokens, time, {start: interval(micros) for start, (_, micros) in values.items()})
    fields.places["session.gap_by"] = by.place
    return Gap(default, by.text, longest)


def _values(query: Query, tokens: Tokens) -> Iterator[tuple[TokenType, Tokens]]:
    """Yield the words THEN and ELSE with the token of each one's duration."""
    cases = [token for token in tokens if token.token_type == TokenType.CASE]
    for number, token in enumerate(tokens[:-1]):
        if token.token_type in (TokenType.THEN, TokenType.ELSE):
            value = tokens[number + 1]
            if value.token_type != TokenType.STRING or len(cases) > 1:
                said = shown(query.said(tokens))
                raise QueryError("gap", f"{said!r} is no gap of a pipeline; {_SUPPORTED}", query.place(value))
            yield token.token_type, [value]


def _case(query: Query, fields: Fields, tokens: Tokens, time: str, instead: dict[int, str]) -> Piece:
    """Return the CASE with intervals in place of texts."""
    piece = fields.of_event(tokens, time)
    text = piece.text
    for start, words in instead.items():
        token = next(token for token in tokens if token.start == start)
        text = text.replace(query.said([token]), words, 1)
    return Piece(text, piece.place, piece.tree)
