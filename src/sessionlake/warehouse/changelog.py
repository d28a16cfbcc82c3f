"""A pipeline's changelog and the queries over it: names and identity of its rows, and the latest of each as SQL.

One SQL text serves Spark and DuckDB here, and other engines by `sessionlake views`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sessionlake.config.operators import named
from sessionlake.warehouse.dialects import Dialect

if TYPE_CHECKING:
    from sessionlake.config.config import Config

FOLD = "sessionlake.fold"
"""Delta's txnAppId of the commits that fold the changelog into the snapshot; their txnVersion is the batch_id reached."""
NUMBERS = 10_000_000
"""Messages of a part of a snapshot whose rows are numbered, as a day is of others."""
STATE = "state"
"""The column of packed states, unless a column of that name is the user's."""
PART = f"cast(floor(cast({{}} as double) / {float(NUMBERS)!r}e0) as bigint)"
"""The part of a number, as any engine's SQL."""
SIGN = "_sign"
"""The column of a difference between two batches' rows: 1 for an added row, -1 for a row taken back."""
DELETED = "deleted"
"""The column of a keyed snapshot that marks tombstones, which are kept for the retention."""
CAUSE, UPDATE = "cause", "update"
"""The column of a keyed changelog with a change's cause, and the cause of an event's change."""
WRITTEN, INSERTED = "written_at", "inserted_at"
"""The columns of a keyed changelog and snapshot with the time of a row's last write, and of its key's first row."""
LIVE = "live"
"""The name of the query of the latest rows in conditions over it."""
UNCHANGED = "held.revision is not null"
"""The condition of a row whose result has not changed since it was sent, beside `Changelog.held_sql`."""
HIDDEN_WRITTEN = "hidden_written_us"
"""A state's number: rows written at or before this time have expired without a delete."""


@dataclass(frozen=True)
class Changelog:
    """The tables of a pipeline's results. In this class a row is identified by its key and its start, which is a time.

    For example, a changelog called `session` has the table session_changelog, whose rows have the column session_key.
    The changelog has every change and is the truth. The snapshot has the changes that compaction has folded into it.
    The live view is the latest of both. Subclasses are for rows of other shapes.
    """

    name: str
    """The name of a row: session, window, join."""
    state_changelogs: tuple["Changelog", ...] = ()
    """The changelogs of the state, if it is not the rows that are sent."""
    key_columns: tuple[str, ...] = ()
    """The columns behind a key of several columns, next to it in rows. Tables of 0.2 may lack them."""

    @property
    def counts(self) -> tuple[str, ...]:
        """The counts of its batches besides every pipeline's (`schemas.COUNTS`)."""
        return ()

    @property
    def accepted_counts(self) -> tuple[str, ...]:
        """The counts that add up to the accepted events: each event is in a single count. Empty if the operator has none."""
        return ()

    @property
    def state(self) -> tuple[str, ...]:
        """Further tables that the state is restored from; their rows never change."""
        return ()

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that name a row, with the key, if its start does not."""
        return ()

    @property
    def has_times(self) -> bool:
        """Whether start and end are times, and not whole numbers."""
        return True

    @property
    def keeps_deletions(self) -> bool:
        """Whether the snapshot has deletions, too, as rows that are DELETED."""
        return False

    @property
    def changes(self) -> str:
        """The table of changes, whose commits are the batches'."""
        return f"{self.name}_changelog"

    @property
    def snapshot(self) -> str:
        """The table of latest rows, as far as compacted."""
        return f"{self.name}s"

    @property
    def tables(self) -> tuple[str, str]:
        """The two tables, in the order in which they may be pinned: rows trimmed from the first are in the second."""
        return self.changes, self.snapshot

    @property
    def guarded(self) -> tuple[str, ...]:
        """The tables whose rows only sessionlake may change, because the next results are computed from them."""
        return self.changes, self.snapshot, *self.state

    @property
    def live(self) -> str:
        """The view of latest rows, as they are shown."""
        return f"{self.name}s_live"

    @property
    def every(self) -> str:
        """The view of all latest rows, if some are not shown."""
        return f"all_{self.name}s"

    @property
    def key(self) -> str:
        """The column of the key."""
        return f"{self.name}_key"

    @property
    def start(self) -> str:
        """The column of the start; with the key it names a row, unless `numbers` do."""
        return f"{self.name}_start"

    @property
    def end(self) -> str:
        """The column of the end."""
        return f"{self.name}_end"

    @property
    def read_by(self) -> str:
        """The column of a row's time for a pipeline that reads it and names no other."""
        return self.start

    @property
    def began(self) -> str | None:
        """The column of the time from which on a row is as an event has made it; None if this is its batch's commit."""
        return None

    @property
    def aged_by(self) -> str:
        """The column of the time that says how old a row is."""
        return self.end

    @property
    def id(self) -> str:
        """The column that is a hash of the columns that identify a row."""
        return f"{self.name}_id"

    @property
    def date(self) -> str:
        """The snapshot's column of the part that a row is in: the start's UTC date."""
        return f"{self.name}_date"

    @property
    def numbered_parts(self) -> bool:
        """Whether `date` is a whole number."""
        return False

    @property
    def hidden(self) -> tuple[str, ...]:
        """The tables' columns outside of the live view, which are not published, besides every pipeline's."""
        return ()

    @property
    def of_changes(self) -> tuple[str, ...]:
        """The changelog's columns that say nothing about a row, besides its batch's marks."""
        return "op", STATE

    def without_states(self, columns: Sequence[str]) -> list[str]:
        """Return columns of rows without that of packed states, which say nothing to people."""
        return [name for name in columns if name != STATE or STATE not in self.of_changes]

    @property
    def record_place(self) -> tuple[str, ...]:
        """The columns of a row's record in a topic, if the source is a topic."""
        return ()

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that name a row."""
        return self.key, *(self.numbers or (self.start,))

    @property
    def one_per_key(self) -> bool:
        """Whether a key has at most one row."""
        return self.identity == (self.key,)

    @property
    def named_identity(self) -> tuple[str, ...]:
        """The columns that name a row, with the key's own columns in the key's place."""
        return *(self.key_columns or (self.key,)), *(name for name in self.identity if name != self.key)

    def identity_in(self, dialect: Dialect) -> tuple[str, ...]:
        """Return the columns that name a row in an engine."""
        return (self.key, self.id) if dialect.by_id else self.identity

    def part_sql(self, dialect: Dialect) -> str:
        """Return the part of a change, `date`, as SQL."""
        return dialect.date.format(self.start)

    def stored_sql(self, dialect: Dialect) -> Mapping[str, str]:
        """Return by name the SQL over a change of the columns that only the snapshot has."""
        return {self.date: self.part_sql(dialect)}

    @property
    def stored_changes_sql(self) -> str:
        """Return the condition of changes that the snapshot is to have as rows."""
        return "op = 'upsert'"

    def live_sql(
        self,
        dialect: Dialect,
        columns: Sequence[str],
        *,
        snapshot: str | None = None,
        changelog: str | None = None,
        after: int | None = None,
        deleted: bool = False,
        hidden_us: int | str | None = None,
    ) -> str:
        """Return the query of the latest state of every row: the snapshot's row, unless the changelog has a later one.

        `columns` are the snapshot's. `snapshot` and `changelog` are the tables' names in the query, if they differ.
        Changes of batches up to `after`, the fold point, need not be read. With `deleted` the tombstones of a snapshot that
        keeps them are among the rows, with all columns of the snapshot. From such a snapshot, rows written at `hidden_us` (a
        number or SQL) or before it are left out.
        """
        # Changes before the fold point do no harm: for each row the last change counts, and the changelog is trimmed only from
        # its beginning. So any change of a row includes its last change.
        snapshot, changelog = snapshot or self.snapshot, changelog or self.changes
        identity, stored = self.identity_in(dialect), self.stored_sql(dialect)
        same = " and ".join(f"tail.{name} = stored.{name}" for name in identity)
        shown = [name for name in self._with_key_columns(columns) if deleted or name not in self.hidden]
        names = [dialect.named(name) for name in shown]
        if self.key_columns and self.key_columns[0] not in columns:
            parts = {name: dialect.key_part.format(self.key, at) for at, name in enumerate(self.key_columns)}
            names = [f"{parts[name]} as {n}" if name in parts else n for name, n in zip(shown, names, strict=True)]
        dated = [f"{stored[name]} as {n}" if name in stored else n for name, n in zip(shown, names, strict=True)]
        conditions = " and ".join(["op <> 'emit'", *([f"batch_id > {after}"] if after is not None else [])])
        kept, put = self._live_conditions(dialect, deleted, hidden_us)
        return f"""\
with tail as (
  select * from {changelog} where {conditions}
), ranked as (
  select tail.*, row_number() over (partition by {", ".join(identity)} order by batch_id desc) as _rank from tail
)
select {", ".join(names)} from {snapshot} as stored
where not exists (select 1 from tail where {same}){kept}
union all
select {", ".join(dated)} from ranked where _rank = 1{put}"""

    def held_sql(self, dialect: Dialect, table: Callable[[str], str], after: int | None = None) -> str:
        """Return the join of the query named LIVE with the state, which finds UNCHANGED rows: those that are in it at their revision.

        `table` names a table in the query by its own name, `after` is the fold point of the state's snapshot. The tables of the
        state may be of a later batch than the rows.
        """
        state = self.state_changelogs[0]
        names = state.identity_in(dialect)
        rows = state.live_sql(
            dialect, [*names, "revision"], snapshot=table(state.snapshot), changelog=table(state.changes), after=after
        )
        same = [f"held.{theirs} = {LIVE}.{ours}" for ours, theirs in zip(self.identity_in(dialect), names, strict=True)]
        return f"left join (\n{rows}\n) as held on {' and '.join([*same, f'held.revision = {LIVE}.revision'])}"

    def _with_key_columns(self, columns: Sequence[str]) -> list[str]:
        """Return a table's columns and, after the key, the key's columns that the table lacks."""
        lacking = [name for name in self.key_columns if name not in columns]
        at = list(columns).index(self.key) + 1 if lacking else 0
        return [*columns[:at], *lacking, *columns[at:]]

    def _live_conditions(self, dialect: Dialect, deleted: bool, hidden_us: int | str | None) -> tuple[str, str]:  # noqa: FBT001
        """Return further conditions of rows of the snapshot, and of changes."""
        del dialect, hidden_us
        return "", "" if deleted else " and op = 'upsert'"


@dataclass(frozen=True)
class NumberedChangelog(Changelog):
    """A changelog of rows that start and end with whole numbers."""

    @property
    def has_times(self) -> bool:
        """No."""
        return False

    @property
    def aged_by(self) -> str:
        """The time at which the row was sent last."""
        return "emitted_at"

    @property
    def read_by(self) -> str:
        """The time at which the row was sent last."""
        return self.aged_by

    @property
    def date(self) -> str:
        """The start divided by NUMBERS, rounded down."""
        return f"{self.name}_part"

    @property
    def numbered_parts(self) -> bool:
        """Yes."""
        return True

    def part_sql(self, dialect: Dialect) -> str:
        """Return the number of the part."""
        del dialect
        return PART.format(self.start)


@dataclass(frozen=True)
class TimedChangelog(Changelog):
    """A changelog of rows with a single time, named by key and numbers."""

    time: str = ""
    numbers: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()

    @property
    def of_changes(self) -> tuple[str, ...]:
        """No states: a column of that name is the user's."""
        return ("op",)

    @property
    def start(self) -> str:
        """The one time."""
        return self.time

    @property
    def end(self) -> str:
        """The one time."""
        return self.time


@dataclass(frozen=True)
class OneRowChangelog(Changelog):
    """A changelog of rows that the key alone names, and whose time changes.

    All rows are of one part, 0, whose files hold ranges of keys.
    """

    time: str = ""
    counts: tuple[str, ...] = ()

    @property
    def start(self) -> str:
        """The one time."""
        return self.time

    @property
    def end(self) -> str:
        """The one time."""
        return self.time

    @property
    def date(self) -> str:
        """Always 0."""
        return f"{self.name}_part"

    @property
    def numbered_parts(self) -> bool:
        """Yes."""
        return True

    @property
    def hidden(self) -> tuple[str, ...]:
        """The part, which says nothing about a row."""
        return (self.date,)

    @property
    def identity(self) -> tuple[str, ...]:
        """The key."""
        return (self.key,)

    def identity_in(self, dialect: Dialect) -> tuple[str, ...]:
        """Return the key."""
        del dialect
        return self.identity

    def part_sql(self, dialect: Dialect) -> str:
        """Return 0."""
        del dialect
        return "0"


@dataclass(frozen=True)
class KeyedChangelog(OneRowChangelog):
    """A changelog of rows that the key alone names, whose events come in any order. So the snapshot keeps deletions."""

    @property
    def of_changes(self) -> tuple[str, ...]:
        """No states: a column of that name is the user's."""
        return "op", CAUSE

    @property
    def accepted_counts(self) -> tuple[str, ...]:
        """All."""
        return self.counts

    @property
    def began(self) -> str:
        """The time of the event, if an event is the cause of the change."""
        return self.time

    @property
    def keeps_deletions(self) -> bool:
        """Yes."""
        return True

    @property
    def snapshot(self) -> str:
        """The table of latest rows, as far as compacted."""
        return f"{self.name}_snapshot"

    @property
    def live(self) -> str:
        """The view of latest rows, as they are shown."""
        return f"{self.name}_live"

    @property
    def every(self) -> str:
        """The view of all latest rows, if some are not shown."""
        return f"all_{self.name}_rows"

    @property
    def hidden(self) -> tuple[str, ...]:
        """The columns about the row's changes."""
        return DELETED, self.date, CAUSE, WRITTEN, INSERTED

    @property
    def record_place(self) -> tuple[str, ...]:
        """Partition and offset."""
        return "event_partition", "event_offset"

    def stored_sql(self, dialect: Dialect) -> Mapping[str, str]:
        """Return the part, and whether the change is a deletion."""
        return {self.date: self.part_sql(dialect), DELETED: "op = 'delete'"}

    @property
    def stored_changes_sql(self) -> str:
        """Return that all changes are stored: deletions, too."""
        return "true"

    def _live_conditions(self, dialect: Dialect, deleted: bool, hidden_us: int | str | None) -> tuple[str, str]:  # noqa: FBT001
        kept, put = ("", "") if deleted else (f" and not {DELETED}", " and op = 'upsert'")
        if hidden_us is None:
            return kept, put
        written = f"{dialect.micros.format(WRITTEN)} > {hidden_us}"
        return f"{kept} and ({DELETED} or {written})", f"{put} and (op = 'delete' or {written})"


def changelog_of(config: "Config") -> Changelog:
    """Return the changelog of a pipeline's operator. Of the operator only the changelog's module is imported."""
    named_changelog: Changelog = named(config.entry.changelog)
    columns = config.table_key_columns
    return replace(named_changelog, key_columns=columns) if columns else named_changelog


def shown_sql(live: str, where: str | None = None, final: str | None = None, held: str | None = None) -> str:
    """Return the query of rows of the query `live` that fulfil a condition, with a further column `final`, a condition, if given.

    With `held`, which is `Changelog.held_sql`, a row is final only if it is UNCHANGED, too.
    """
    if where is None and final is None:
        return live
    whole = final if held is None else f"{final} and {UNCHANGED}"
    mark = "" if final is None else f", coalesce({whole}, false) as final"
    joined = "" if held is None else f"\n{held}"
    return f"select {LIVE}.*{mark} from (\n{live}\n) as {LIVE}{joined}" + ("" if where is None else f" where {where}")
