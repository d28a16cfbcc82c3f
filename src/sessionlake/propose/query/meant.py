"""Windows as other systems call them, or with a slip of the pen, and the same ones of Spark's SQL."""

from sessionlake.errors import did_you_mean
from sessionlake.propose.query.brackets import Tokens, inner_of
from sessionlake.propose.query.inputs import arguments_of
from sessionlake.propose.query.spans import CALLS, SESSION
from sessionlake.propose.query.words import Query, name_of

_FLINKS = {"tumble": ("window", (0, 1)), "hop": ("window", (0, 2, 1))}
"""Flink's functions: Spark's, and its arguments by their numbers in Flink's."""
_UNITS = ("second", "minute", "hour", "day")
"""Units of one length, whose windows begin where `date_trunc` does."""


def window_meant(query: Query, tokens: Tokens) -> str | None:
    """Return how a pipeline has the window that an expression of GROUP BY means, to follow its text; None if it means none."""
    inside, name = inner_of(tokens[1:]), name_of(tokens[0])
    if inside is None or len(inside) + 3 != len(tokens):
        return None
    given = [query.said(argument) for argument in arguments_of(tokens)]
    told = None
    if name in _FLINKS and len(given) == len(_FLINKS[name][1]):
        ours, order = _FLINKS[name]
        told = f"is a window of Flink's SQL; write {ours}({', '.join(given[at] for at in order)})"
    elif name == "date_trunc" and len(given) == 2 and given[0].strip("'\"").lower() in _UNITS:
        told = f"is a window of time; write window({given[1]}, '1 {given[0].strip(chr(39) + chr(34)).lower()}')"
    elif near := did_you_mean(name, list(CALLS)):
        told = f"is no window{near}; write {name_like(near)}"
    return told


def name_like(near: str) -> str:
    """Return the form of the function that is named in a question of `did_you_mean`."""
    return "session_window(t, '30 minutes')" if SESSION in near else "window(t, '1 hour')"
