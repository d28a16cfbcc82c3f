"""`row_number() over (partition by key order by time desc) = 1`, as a table of the latest row of each key."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import TokenType, exp

from sessionlake.columnar.equality import NUMBER, TEXT, family_of
from sessionlake.operators.keyed.section import RESERVED
from sessionlake.propose.choose import is_plain
from sessionlake.propose.query.blocks import Block, refused
from sessionlake.propose.query.brackets import Tokens, split
from sessionlake.propose.query.inlined import input_of, scope_over, starred
from sessionlake.propose.query.inputs import Input, bracketed, take_all_hints
from sessionlake.propose.query.items import Item, item_of
from sessionlake.propose.query.live import Shown, identifier, key_sql
from sessionlake.propose.query.ranks import Rank, rank_of
from sessionlake.propose.query.subqueries import names_of
from sessionlake.propose.query.words import Found, Query, QueryError, name_of, parsed
from sessionlake.propose.sample import Sample
from sessionlake.sources.columns import TIMESTAMP


@dataclass
class Latest:
    """A pipeline of a table."""

    input: Input
    columns: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Columns of `*` that no table can have."""
    delete_when: str | None = None
    shown: list[Shown] = field(default_factory=list)
    view: str = "table_live"
    conditions: tuple[str, ...] = ()
    """None: the view has the rows of the query alone."""

    @property
    def inputs(self) -> list[Input]:
        """Its one input."""
        return [self.input]


def latest_of(query: Query, block: Block, inner: Block | None, sample: Sample) -> Latest:
    """Return the pipeline of a query for each key's first row; `inner` is its subquery.

    QueryErrors has all that no pipeline can have.
    """
    lowest = inner or block
    return _Reader(query, block, inner, input_of(query, sample, lowest.source, lowest.named)).latest()


class _Reader:
    def __init__(self, query: Query, block: Block, inner: Block | None, read: Input) -> None:
        self._query, self._block, self._inner, self._input = query, block, inner, read
        blocks = [block] if inner is None else [block, inner]
        self._found = Found(error for one in blocks for error in (*refused(query, one), *self._beside(one)))
        self._lowest = inner or block
        self._items = [item_of(query, tokens) for tokens in split(self._lowest.select)]
        self._scope = read.fields.scope
        """The columns that the outer SELECT sees."""

    def latest(self) -> Latest:
        with self._found.kept():
            rank = rank_of(self._query, self._block, self._inner, self._items)
            return self._of_rank(rank)
        raise self._found.all

    def _of_rank(self, rank: Rank) -> Latest:
        with self._found.kept():
            self._order(rank)
        with self._found.kept():
            for number, tokens in enumerate(rank.partition, 1):
                self._input.key.append(self._input.fields.column(self._input.fields.piece(tokens), f"key_{number}"))
        with self._found.kept():
            self._input.set_where([self._lowest.where] if self._lowest.where else [])
        take_all_hints(self._query, [self._input], self._found)
        self._found.raise_any()
        latest = Latest(self._input)
        if self._inner is not None:
            names = names_of(self._query, self._block.source)
            self._scope = scope_over(self._query, self._inner, self._scope, names, ranked=True)
        for item in self._outer_items():
            with self._found.kept():
                self._show(item, latest, rank)
        with self._found.kept():
            self._delete(rank.rest, latest)
        self._found.raise_any()
        return latest

    def _beside(self, block: Block) -> Iterator[QueryError]:
        """Yield an error for each clause that does not go with row_number."""
        for tokens in (block.group, *block.joins):
            if tokens:
                reason = "is in one query with row_number(); make a pipeline of the rows' numbers alone, and another one behind it (a chain)"
                yield self._query.refusal("select", tokens, reason)

    def _order(self, rank: Rank) -> None:
        """Take the first order as the event time, and a second one as the id, which decides between equal times."""
        columns = [self._descending(tokens) for tokens in rank.order]
        self._input.expect_time(columns[0])
        pieces = [self._input.fields.piece(tokens) for tokens in columns]
        self._input.set_time(pieces[0])
        if len(pieces) == 1:
            return
        column = self._input.fields.column(pieces[1], "tie")
        if len(pieces) > 2 or family_of(self._input.fields.types[column]) not in (NUMBER, TEXT):
            reason = "between updates of one time the greatest id decides; order by the time and one column of numbers or texts at most"
            raise pieces[-1].error("order_by", f"{', '.join(piece.text for piece in pieces[1:])!r}: {reason}")
        self._input.id = (column,)

    def _descending(self, tokens: Tokens) -> Tokens:
        """Return an ORDER BY expression without its direction, which must be down."""
        plain = list(tokens)
        if len(plain) > 2 and [name_of(token) for token in plain[-2:]] in (["nulls", "first"], ["nulls", "last"]):
            del plain[-2:]
        if plain[-1].token_type in (TokenType.DESC, TokenType.ASC):
            plain.pop()
        ordered = parsed(f"f() over (order by {self._query.said(tokens)})").find(exp.Ordered)
        if ordered is None or not plain or not ordered.args.get("desc") or ordered.args.get("nulls_first"):
            reason = "keeps another row than the latest one, which is all that a table keeps; write time desc"
            raise self._query.refusal("order_by", tokens, reason, word="order by")
        return plain

    def _outer_items(self) -> list[Item]:
        if self._inner is None:
            return self._items
        return [item_of(self._query, tokens) for tokens in split(self._block.select)]

    def _show(self, item: Item, latest: Latest, rank: Rank) -> None:
        """Take an item of the outer SELECT as a column of the live view."""
        if item.is_star:
            self._show_all(item, latest)
            return
        name = item.name
        is_rank = isinstance(item.tree, exp.Column) and item.tree.name.lower() in rank.aliases
        if isinstance(item.tree, exp.Window) or is_rank:
            latest.shown.append(Shown("1", name or "row_number"))
            return
        piece = self._input.fields.piece(item.tokens, scope=self._scope)
        self._show_column(self._input.fields.column(piece, name or "column"), name or piece.text, latest)

    def _show_all(self, item: Item, latest: Latest) -> None:
        """Show the columns of a `*`."""
        for one in starred(self._query, item, self._scope):
            if one.is_rank:
                latest.shown.append(Shown("1", one.name))
            elif one.column and not is_plain(self._input.sample.types[one.column]):
                latest.left_out.append(one.name)
            else:
                column = self._input.fields.column_of(one)
                self._input.fields.read.add(column)
                self._show_column(column, one.name, latest)

    def _show_column(self, column: str, name: str, latest: Latest) -> None:
        """Show a column of the input under a name."""
        fields, read = self._input.fields, self._input
        kind = fields.types[column]
        if column in read.key:
            sql = key_sql(identifier(column) if len(read.key) > 1 else "table_key", kind)
        elif column == read.time and kind == TIMESTAMP:
            sql = "event_time"
        else:
            if column.lower() in RESERVED or column in (read.time, *read.id):
                # A row can't have it under this name, so it is computed again under another.
                column = fields.copied(column, f"{column}_of_row", self._query.place(self._block.start), list(RESERVED))
            if column not in latest.columns:
                latest.columns.append(column)
            sql = identifier(column)
        latest.shown.append(Shown(sql, name))

    def _delete(self, rest: list[Tokens], latest: Latest) -> None:
        """Take the other conditions on the latest row: a row that does not pass them is as good as deleted."""
        pieces = [self._input.fields.of_event(tokens, self._input.time, self._scope) for tokens in rest]
        if pieces:
            latest.delete_when = f"({' and '.join(map(bracketed, pieces))}) is not true"
            self._input.fields.places["table.delete_when"] = pieces[0].place
