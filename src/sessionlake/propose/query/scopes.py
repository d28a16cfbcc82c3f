"""The columns that a query sees in its input: the sample's, and columns computed or renamed by its subqueries."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sessionlake.propose.query.brackets import Tokens


@dataclass(frozen=True)
class Visible:
    """A column of a scope: the sample's, a subquery's computed column, or the number of a row."""

    name: str
    """As a `*` outside calls it."""
    column: str = ""
    """The sample's column; empty for another one."""
    tokens: Tokens = ()
    """The expression of a computed column."""
    scope: "Scope | None" = None
    """The columns that the expression sees."""
    twice: bool = False
    """Whether the subquery has several columns of this name."""

    @property
    def is_rank(self) -> bool:
        """Whether it is a row number, which is 1 for all remaining rows."""
        return not self.column and not self.tokens


@dataclass(frozen=True)
class Scope:
    """The columns of a table or a subquery."""

    names: tuple[str, ...]
    """The names of the table or subquery, its alias last; in small letters."""
    columns: dict[str, Visible] = field(default_factory=dict)
    """By their names in small letters."""
    below: "Scope | None" = None
    """The columns of what a subquery reads."""

    def refused(self, name: str) -> str | None:
        """Return why no expression can read a column of a name, in small letters; None if an expression can."""
        one = self.columns.get(name)
        if one is None:
            listed = ", ".join(column.name for column in self.columns.values() if not column.is_rank)
            return f"is no column of {'the sample' if self.below is None else 'the subquery'}'s; write one of {listed}"
        if one.is_rank:
            return "is 1 in all rows that are left; select it by itself, or write 1"
        return "may be any of several columns of the subquery; give each its own alias" if one.twice else None

    def within(self) -> Iterator["Scope"]:
        """Yield this scope and the scopes below."""
        yield self
        if self.below is not None:
            yield from self.below.within()
