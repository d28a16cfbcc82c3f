"""Items of SELECT, each an expression and its alias, and aggregates, which a config writes alike except for a few names of Spark's."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sqlglot import TokenType, exp

from sessionlake.aggregates.functions import ALIASES, FUNCTIONS
from sessionlake.config.names import RESERVED
from sessionlake.operators.sessions.section import SessionSection
from sessionlake.operators.windows.section import WindowSection
from sessionlake.propose.query.brackets import Tokens
from sessionlake.propose.query.fields import Fields, free_name
from sessionlake.propose.query.words import Query, parsed, unmasked


@dataclass(frozen=True)
class Item:
    """An item of SELECT."""

    tokens: Tokens
    """The expression's tokens."""
    alias: str | None
    said: str
    """The expression as written, with the names of tables."""
    name: str
    """Its name in the result: its alias or its column's name; the empty text for other expressions."""
    tree: exp.Expression

    @property
    def is_star(self) -> bool:
        """Whether it is `*`, `t.*` or `* except (a)`."""
        tree = self.tree.this if isinstance(self.tree, exp.Column) else self.tree
        return isinstance(tree, exp.Star)


def item_of(query: Query, tokens: Tokens, fields: Fields | None = None) -> Item:
    """Return an item from tokens; `fields` are its single input's, if it has a single one."""
    whole = parsed(query.said(tokens))
    alias = unmasked(whole.alias) if isinstance(whole, exp.Alias) else None
    if alias is not None:
        tokens = tokens[:-1]
        if tokens[-1].token_type == TokenType.ALIAS:
            tokens = tokens[:-1]
    said = query.said(tokens)
    tree = parsed(said)
    name = alias or unmasked(tree.output_name)
    return Item(tokens, alias, said, name, tree if fields is None else fields.plain(tree))


_SYNONYMS = {
    "mean": "avg",
    "std": "stddev",
    "percentile": "quantile",
    **dict.fromkeys(("percentile_approx", "approx_percentile"), "percentile"),
}
"""Spark's function names that differ in the config. Spark's percentile is exact, as `quantile` is here."""
_KNOWN = frozenset((*FUNCTIONS, *ALIASES, *_SYNONYMS))
TAKEN = (*RESERVED, *SessionSection.RESERVED, *WindowSection.RESERVED, "open_until")
_NAME = re.compile(r"\s*([A-Za-z_]\w*)(?=\s*\()")
_OF_ALL = re.compile(r"count\s*\(\s*\d+\s*\)", re.IGNORECASE)


def is_aggregate(item: Item) -> bool:
    """Say whether an item is a single call of an aggregate, perhaps with a filter."""
    tree = item.tree
    while isinstance(tree, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
        tree = tree.this
    return _is_call(tree)


def has_aggregate(tree: exp.Expression) -> bool:
    """Say whether an expression calls an aggregate somewhere."""
    return any(_is_call(cast("exp.Expression", node)) for node in tree.walk())


def _is_call(tree: exp.Expression) -> bool:
    return isinstance(tree, exp.AggFunc) or (isinstance(tree, exp.Anonymous) and tree.name.lower() in _KNOWN)


def aggregate_text(text: str) -> str:
    """Return a call as the config has it.

    >>> aggregate_text("mean(price)"), aggregate_text("count(1) filter (where buy)")
    ('avg(price)', 'count(*) filter (where buy)')
    """
    text = _OF_ALL.sub("count(*)", text, count=1) if _OF_ALL.match(text) else text
    name = _NAME.match(text)
    return text if name is None else _SYNONYMS.get(name[1].lower(), name[1]) + text[name.end() :]


def free_aggregate(item: Item, taken: Sequence[str]) -> str:
    """Return an aggregate's name: its alias, if a column may have it, otherwise a word of its text.

    `taken` are the names of the others.
    """
    wish = item.alias or re.sub(r"\bwhere\b|\bfilter\b|[^A-Za-z0-9_]+", "_", item.said.replace("*", "all"))
    return free_name(re.sub(r"_+", "_", wish).strip("_")[:60], [*taken, *TAKEN])
