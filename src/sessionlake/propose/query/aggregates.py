"""Aggregates of a query, as the config has them: the same words, except for a few names of Spark's."""

import re
from collections.abc import Sequence
from typing import cast

from sqlglot import exp

from sessionlake.aggregates.functions import ALIASES, FUNCTIONS
from sessionlake.config.names import RESERVED
from sessionlake.operators.sessions.section import SessionSection
from sessionlake.operators.windows.section import WindowSection
from sessionlake.propose.query.fields import free_name
from sessionlake.propose.query.items import Item

_SYNONYMS = {
    "mean": "avg",
    "std": "stddev",
    "percentile": "quantile",
    **dict.fromkeys(("percentile_approx", "approx_percentile"), "percentile"),
}
"""Spark's names of functions that the config calls differently. Spark's percentile is exact, as `quantile` is here."""
_KNOWN = frozenset((*FUNCTIONS, *ALIASES, *_SYNONYMS))
TAKEN = (*RESERVED, *SessionSection.RESERVED, *WindowSection.RESERVED, "open_until")
_NAME = re.compile(r"\s*([A-Za-z_]\w*)(?=\s*\()")
_OF_ALL = re.compile(r"count\s*\(\s*\d+\s*\)", re.IGNORECASE)


def is_aggregate(item: Item) -> bool:
    """Say whether an item is one call of an aggregate, perhaps with a filter."""
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
    """Return a name for an aggregate: its alias, if a column can be called so, otherwise a word of its text.

    `taken` are the names of the others.
    """
    wish = item.alias or re.sub(r"\bwhere\b|\bfilter\b|[^A-Za-z0-9_]+", "_", item.said.replace("*", "all"))
    return free_name(re.sub(r"_+", "_", wish).strip("_")[:60], [*taken, *TAKEN])
