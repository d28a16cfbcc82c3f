"""Functions of texts for expressions, by their names in Spark's SQL."""

import re
from collections.abc import Mapping

from sqlglot import exp

from sessionlake.columnar.letter_cases import INITCAP_FUNCTION, LOWER_FUNCTION, REVERSE_FUNCTION, UPPER_FUNCTION
from sessionlake.columnar.spark_sql.typed import Function, Rule, Typed, Walk, number, once, quoted

_MOST = 1000
"""The length of a padded text, and the number of repetitions."""
_MOST_GROUPS = 9
_SIDE = "(case when {{1}} is not null then {side}({{0}}, least(greatest({{1}}, 0), 2147483647)) end)"


def _trimmed(walk: Walk, node: exp.Expression) -> Typed:
    text, *signs = (walk.text(operand) for operand in node.expressions)
    return Typed(f"trim({text}, {signs[0] if signs else quoted(' ')})", "string")


def _padded(word: str) -> Rule:
    def rule(walk: Walk, node: exp.Expression) -> Typed:
        operand, count, *fill = node.expressions
        length, by = _bounded(walk, node, count), walk.text(fill[0]) if fill else quoted(" ")
        template = f"case when {{2}} is null then null when length({{0}}) >= {{1}} or {{2}} = '' then left({{0}}, {{1}}) else {word}({{0}}, {{1}}, {{2}}) end"
        return Typed(once(template, walk.text(operand), str(length), by), "string")

    return rule


def _repeated(walk: Walk, node: exp.Expression) -> Typed:
    operand, count = node.expressions
    return Typed(f"repeat({walk.text(operand)}, {_bounded(walk, node, count)})", "string")


def _bounded(walk: Walk, node: exp.Expression, count: exp.Expression) -> int:
    """Return a literal number of characters or repetitions."""
    given = number(walk, count)
    if given is None or given > _MOST:
        raise walk.error(node, f"is not listed; write a number up to {_MOST}")
    return max(given, 0)


def _replaced(walk: Walk, node: exp.Expression) -> Typed:
    operand, pattern, by = node.expressions
    text, pattern, by = walk.text(operand), walk.seen(pattern), walk.seen(by)
    if not pattern.is_string or not by.is_string:
        raise walk.error(node, "is not listed; write a text, a pattern in quotes, and a replacement in quotes")
    groups = _groups(pattern.name)
    if groups is None:
        raise walk.error(node, "has a pattern that matches an empty text; write a pattern for one character or more")
    written = _rewritten(by.name, groups)
    if written is None:
        raise walk.error(
            node, r"has a sign in the replacement that stands for no group; write $1 to $9, or \\$ for a dollar"
        )
    return Typed(f"regexp_replace({text}, {quoted(pattern.name)}, {quoted(written)}, 'g')", "string")


def _groups(pattern: str) -> int | None:
    """Return the number of a pattern's groups; None if an empty text may match: Java and RE2 replace these at other places. DuckDB reports errors."""
    try:
        compiled = re.compile(pattern)
    except re.error:
        return None
    least, _ = re._parser.parse(pattern).getwidth()  # type: ignore[attr-defined]  # noqa: SLF001 (no public way tells it)
    return compiled.groups if least else None


def _rewritten(by: str, groups: int) -> str | None:
    r"""Return Java's replacement as RE2 has it; None for a sign that stands for nothing.

    >>> _rewritten(r"$2-\$", 2)
    '\\2-$'
    """
    parts: list[str] = []
    signs = iter(by)
    for sign in signs:
        following = next(signs, "") if sign in "$\\" else ""
        if sign == "$":
            # Of more groups Java may read a second digit.
            if not re.fullmatch("[0-9]", following) or int(following) > groups or groups > _MOST_GROUPS:
                return None
            parts.append(f"\\{following}")
        elif sign == "\\":
            if not following:
                return None
            parts.append("\\\\" if following == "\\" else following)
        else:
            parts.append(sign)
    return "".join(parts)


def _sha2(walk: Walk, node: exp.Expression) -> Typed:
    text, bits = node.expressions
    if number(walk, bits) not in (0, 256):
        raise walk.error(node, "is not listed; write sha2(text, 256)")
    return Typed(f"sha256({walk.text(text)})", "string")


TEXT_RULES: Mapping[str, Rule] = {
    "btrim": _trimmed,
    "lpad": _padded("lpad"),
    "rpad": _padded("rpad"),
    "repeat": _repeated,
    "regexp_replace": _replaced,
    "sha2": _sha2,
}
_OF_TEXT = ("string",)
TEXT_FUNCTIONS: Mapping[str, Function] = {
    **dict.fromkeys(("lower", "lcase"), Function(f"{LOWER_FUNCTION}({{0}})", "string", _OF_TEXT)),
    **dict.fromkeys(("upper", "ucase"), Function(f"{UPPER_FUNCTION}({{0}})", "string", _OF_TEXT)),
    "initcap": Function(f"{INITCAP_FUNCTION}({{0}})", "string", _OF_TEXT),
    "reverse": Function(f"{REVERSE_FUNCTION}({{0}})", "string", _OF_TEXT),
    "left": Function(_SIDE.format(side="left"), "string", ("string", "bigint")),
    "right": Function(_SIDE.format(side="right"), "string", ("string", "bigint")),
    "md5": Function("md5({0})", "string", _OF_TEXT),
    **dict.fromkeys(("sha", "sha1"), Function("sha1({0})", "string", _OF_TEXT)),
}
