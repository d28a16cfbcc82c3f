"""The functions that expressions may call, by the names that Spark has for them.

The parser reads the functions of all dialects. It gives several names one node, and drops arguments that a node has no place for:
`date(a, b)` has the tree of `date(a)`. So names and numbers of arguments are looked at in the text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

_ANY = 1 << 30
_OF_ONE = (
    "abs boolean ceil ceiling char_length character_length date day dayofmonth dayofweek dayofyear double exp floor hour int isnan "
    "isnotnull isnull len length ln log ltrim minute month quarter rtrim second sqrt string timestamp_micros "
    "timestamp_millis timestamp_seconds trim unix_micros unix_millis unix_seconds weekday year cast try_cast "
    "initcap last_day lcase lower md5 reverse sha sha1 sign signum ucase upper"
)
_OF_TWO = (
    "contains date_add date_diff date_sub date_trunc dateadd datediff endswith get_json_object ifnull instr locate mod "
    "nullif nvl pow power regexp_like rlike startswith "
    "add_months date_format from_utc_timestamp left next_day repeat right sha2 to_utc_timestamp"
)
CALLS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("curdate", "current_date", "current_timestamp", "now"), (0, 0)),
    **dict.fromkeys(_OF_ONE.split(), (1, 1)),
    **dict.fromkeys(_OF_TWO.split(), (2, 2)),
    **dict.fromkeys(("coalesce", "concat"), (1, _ANY)),
    **dict.fromkeys(("concat_ws", "greatest", "least"), (2, _ANY)),
    **dict.fromkeys(("if", "make_date", "nvl2", "regexp_replace", "replace", "split_part"), (3, 3)),
    **dict.fromkeys(("btrim", "round", "to_date", "to_timestamp", "try_to_timestamp"), (1, 2)),
    **dict.fromkeys(("convert_timezone", "lpad", "months_between", "rpad"), (2, 3)),
    "width_bucket": (4, 4),
    **dict.fromkeys(("regexp_extract", "substr"), (2, 3)),
    # `position(a in b)` and `substring(a from 2 for 3)` have no commas.
    "position": (1, 2),
    **dict.fromkeys(["array_max", "array_min", "cardinality", "map_keys", "map_values", "size"], (1, 1)),
    **dict.fromkeys(
        [
            "array_contains",
            "array_position",
            "element_at",
            "exists",
            "filter",
            "forall",
            "map_contains_key",
            "split",
            "transform",
        ],
        (2, 2),
    ),
    "array": (1, _ANY),
    "array_join": (2, 3),
    "named_struct": (2, _ANY),
    "slice": (3, 3),
    "sort_array": (1, 2),
    "substring": (1, 3),
}
"""By name the least and the greatest number of arguments."""
_WORDS = frozenset(
    [
        "and",
        "or",
        "not",
        "in",
        "like",
        "ilike",
        "any",
        "some",
        "all",
        "rlike",
        "regexp",
        "between",
        "div",
        "is",
        "when",
        "then",
        "else",
        "case",
        "interval",
        "escape",
        "decimal",
        "numeric",
        "from",
        "both",
        "leading",
        "trailing",
    ]
)
"""Words that may stand before a bracket and call nothing: types are checked by the rule of casts."""
_T = TokenType
_BEFORE_OPERANDS = frozenset(
    (
        *(_T.L_PAREN, _T.COMMA, _T.AND, _T.OR, _T.WHEN, _T.THEN, _T.ELSE, _T.CASE, _T.EQ, _T.NEQ, _T.LT, _T.LTE, _T.GT),
        *(_T.GTE, _T.NULLSAFE_EQ, _T.PLUS, _T.DASH, _T.STAR, _T.SLASH, _T.MOD, _T.DIV, _T.DPIPE, _T.BETWEEN, _T.IS),
    )
)
"""Tokens after which `like (` calls a function."""


@dataclass(frozen=True)
class Call:
    """A name before a bracket."""

    name: str
    start: int
    """The number of the first character."""
    arguments: int
    has_names: bool
    """Whether each other argument is a text in quotes, from the first on."""

    @property
    def wrong(self) -> str | None:
        """The reason for which it is refused; None for a call that is listed."""
        least, most = CALLS.get(self.name, (0, -1))
        if most < least:
            return "is not listed for expressions"
        # The parser takes a column for a name, and leaves a last name without a value out.
        if self.name == "named_struct" and (self.arguments % 2 or not self.has_names):
            return "has not a name in quotes before each value; write named_struct('a', 1, 'b', 2)"
        if least <= self.arguments <= most:
            return None
        allowed = str(least) if least == most else f"{least} or more" if most == _ANY else f"{least} to {most}"
        return f"has {self.arguments} arguments; write {allowed}"


def calls_in(tokens: Sequence[Token]) -> Iterator[Call]:
    """Yield the calls of an expression.

    >>> from sqlglot.dialects import Spark
    >>> [(call.name, call.arguments) for call in calls_in(Spark().tokenize("a in (1, 2) and greatest(a, abs(b)) > 0"))]
    [('greatest', 2), ('abs', 1)]
    """
    for at, token in enumerate(tokens[:-1]):
        name = token.text.lower()
        if tokens[at + 1].token_type != _T.L_PAREN or not (name[:1].isalpha() or name[:1] == "_"):
            continue
        if name not in _WORDS or (
            (name in CALLS or name in ("like", "ilike", "any", "some", "all", "div")) and _begins_operand(tokens, at)
        ):
            arguments = _arguments(tokens[at + 1 :])
            yield Call(name, token.start, len(arguments), _are_texts(arguments[::2]))


def _begins_operand(tokens: Sequence[Token], at: int) -> bool:
    """Say whether a token is where an operand begins, and not an operator behind one."""
    while at and tokens[at - 1].token_type == _T.NOT:
        at -= 1
    return at == 0 or tokens[at - 1].token_type in _BEFORE_OPERANDS


def _arguments(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return the arguments in the brackets with which tokens begin."""
    depth, arguments = 0, [list[Token]()]
    for number, token in enumerate(tokens):
        depth += (token.token_type in (_T.L_PAREN, _T.L_BRACKET)) - (token.token_type in (_T.R_PAREN, _T.R_BRACKET))
        if depth == 0:
            return arguments if number > 1 else []
        if depth == 1 and token.token_type == _T.COMMA:
            arguments.append([])
        elif number:
            arguments[-1].append(token)
    return arguments


def _are_texts(arguments: Sequence[Sequence[Token]]) -> bool:
    return all([token.token_type for token in argument] == [_T.STRING] for argument in arguments)
