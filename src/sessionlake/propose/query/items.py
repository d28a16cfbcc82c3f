"""Items of SELECT: an expression and its alias."""

from dataclasses import dataclass

from sqlglot import TokenType, exp

from sessionlake.propose.query.brackets import Tokens
from sessionlake.propose.query.fields import Fields
from sessionlake.propose.query.words import Query, parsed, unmasked


@dataclass(frozen=True)
class Item:
    """An item of SELECT."""

    tokens: Tokens
    """Those of its expression."""
    alias: str | None
    said: str
    """Its expression as it is written, with the names of tables."""
    name: str
    """Its name in the result: the alias, or that of a column; the empty text of another expression."""
    tree: exp.Expression

    @property
    def is_star(self) -> bool:
        """Whether it is `*`, `t.*` or `* except (a)`."""
        tree = self.tree.this if isinstance(self.tree, exp.Column) else self.tree
        return isinstance(tree, exp.Star)


def item_of(query: Query, tokens: Tokens, fields: Fields | None = None) -> Item:
    """Return the item that tokens are; `fields` are those of the one input that it is over, if it is."""
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
