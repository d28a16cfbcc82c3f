"""A pipeline's changelog and what is read from it: names and identity of its rows, and the latest of each as SQL.

One SQL text serves Spark and DuckDB here, and other engines by `sessionlake views`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sessionlake.warehouse import schemas

if TYPE_CHECKING:
    from sessionlake.config.load import Config

FOLD = "sessionlake.fold"
"""Delta's txnAppId of the commits that fold the changelog into the snapshot; their txnVersion is the batch_id reached."""
DAY_US = 86_400_000_000
NUMBERS = 10_000_000
"""Messages of a part of a snapshot whose rows are numbered, as a day is of others."""
PART = f"cast(floor(cast({{}} as double) / {float(NUMBERS)!r}e0) as bigint)"
"""The part of a number, as any engine's SQL."""


@dataclass(frozen=True)
class Changelog:
    """How the tables of what a pipeline computes are called: `session` has sessions_changelog's rows session_key and so on.

    The changelog has every change and is the truth; the snapshot has what compaction has folded into it; the live view
    is the latest of both.
    """

    name: str
    """What one row is: session, window, join."""
    numbered: bool = False
    """Whether start and end are whole numbers, by count, and not times."""
    time: str | None = None
    """The column of the one time that a row has, where it has no start and end."""
    numbers: tuple[str, ...] = ()
    """The columns that name a row, with the key, where its start does not."""
    counts: tuple[str, ...] = ()
    """What its batches count beside what every pipeline's do (`schemas.COUNTS`): accepted events are in one of these each."""
    keyed: bool = False
    """Whether the key alone names a row, whose time changes. The snapshot then keeps deletions, too, as rows that are DELETED."""
    state: tuple[str, ...] = ()
    """Further tables that the state is restored from; their rows are never changed."""

    @property
    def changes(self) -> str:
        """The table of changes, whose commits are the batches'."""
        return f"{self.name}_changelog"

    @property
    def snapshot(self) -> str:
        """The table of latest rows, as far as compacted."""
        return f"{self.name}_snapshot" if self.keyed else f"{self.name}s"

    @property
    def tables(self) -> tuple[str, str]:
        """The two tables, in an order in which they may be pinned: what is trimmed from the first is in the second."""
        return self.changes, self.snapshot

    @property
    def guarded(self) -> tuple[str, ...]:
        """The tables whose rows nobody but sessionlake may change: what is computed next is computed from them."""
        return self.changes, self.snapshot, *self.state

    @property
    def live(self) -> str:
        """The view of latest rows, as they are shown."""
        return f"{self.name}_live" if self.keyed else f"{self.name}s_live"

    @property
    def every(self) -> str:
        """The view of all latest rows, where some are not shown."""
        return f"all_{self.name}_rows" if self.keyed else f"all_{self.name}s"

    @property
    def key(self) -> str:
        """The column of the key."""
        return f"{self.name}_key"

    @property
    def start(self) -> str:
        """The column of the start; with the key it names a row, unless `numbers` do."""
        return self.time or f"{self.name}_start"

    @property
    def end(self) -> str:
        """The column of the end."""
        return self.time or f"{self.name}_end"

    @property
    def id(self) -> str:
        """The column that is a hash of what names a row."""
        return f"{self.name}_id"

    @property
    def date(self) -> str:
        """The snapshot's column of the start's UTC date; of numbers, of how many times NUMBERS there are before the start.

        Rows that a key names are all of one part, 0, whose files hold ranges of keys.
        """
        return f"{self.name}_part" if self.numbered or self.keyed else f"{self.name}_date"

    @property
    def numbered_parts(self) -> bool:
        """Whether `date` is a whole number."""
        return self.numbered or self.keyed

    @property
    def hidden(self) -> tuple[str, ...]:
        """The tables' columns that the live view has not, and that are not published, beside those of every pipeline."""
        return (DELETED, self.date, CAUSE, WRITTEN, INSERTED) if self.keyed else ()

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that name a row."""
        if self.keyed:
            return (self.key,)
        return self.key, *(self.numbers or (self.start,))


SESSIONS = Changelog("session")
QUARANTINED, QUARANTINED_KEYS = "sessions_quarantined", "quarantined_keys"
"""The views of what [quarantine] keeps apart: the sessions, and how many there are of each key."""
_RULES = {
    "spark": "array_join(array_sort(collect_set(rule)), ', ')",
    "duckdb": "string_agg(distinct rule, ', ' order by rule)",
}


def quarantined_keys_sql(engine: str) -> str:
    """Return the query of the keys that have sessions in quarantine, over the view of these; `engine` is spark or duckdb."""
    return (
        "select session_key, count(*) as sessions, cast(sum(event_count) as bigint) as events, "
        f"min(session_start) as first_start, max(session_end) as last_end, {_RULES[engine]} as rules "
        f"from {QUARANTINED} group by session_key"
    )


SLICE = "slice"
"""What a row of a changelog of the state is, where the rows that are sent are not the state."""
JOINS = Changelog("join", time="join_time", numbers=("left_position", "right_position"), state=(schemas.JOIN_MESSAGES,))
"""A pair has the later of its messages' times."""
TABLE = Changelog("table", time="event_time", keyed=True, counts=("changed", "superseded", "unchanged"))
EXPIRED_BY_JOB = "expire"
"""The cause of a tombstone in a topic that the job `expire` sends, beside those of cleanups (TTL, LRU)."""
DELETED = "deleted"
"""The column of a keyed table's snapshot that tells deletions, kept for the retention, from rows."""
CAUSE = "cause"
"""The column of a keyed table's changelog that says what changed the row."""
TTL, LRU = "ttl", "lru"
"""Causes of a change: a row's time is over, or there are too many rows."""
WRITTEN, INSERTED = "written_at", "inserted_at"
"""The columns of a keyed table's changelog and snapshot that say when a row was written last, and when its key got one."""
HIDDEN_WRITTEN = "hidden_written_us"
"""The number of a keyed table's state that is the time at which or before it rows were written that have expired without a delete."""
LIVE_ROWS = "live_rows"
"""The number of a keyed table's state that is how many rows it has; null where that was not counted from the start."""
EXPIRY_LAG, ROUND = "expiry_lag_us", "cleanup_round_us"
"""Numbers of a state that tell of the last cleanup of [ttl]: how long ago, at most, expired what it took away; and how long ago, at
most, the round of its shards began, or ended, where a cleanup looks at a part of the rows."""
EXPIRED_EVENTS = "expired_events"
"""The number of a state of sessions that is how many events those had which [ttl] has removed."""
EVICTED_ROWS = "evicted_rows"
"""The number of a keyed table's state that is how many rows have gone, because there were too many, before their time was over."""
OF_THEIR_OWN = {of.name: of for of in (JOINS, TABLE)}
"""The changelogs that differ from others by more than their names, by operator."""


def changelog_of(config: "Config") -> Changelog:
    """Return the changelog of what a pipeline computes: it is called as the section that asks for it."""
    return OF_THEIR_OWN.get(config.operator) or Changelog(config.operator, numbered=config.section.by_count)


@dataclass(frozen=True)
class Dialect:
    """What differs from one engine's SQL to another's."""

    quote: str
    date: str
    """The UTC date of a column, whatever the session's time zone."""
    micros: str
    """A time in whole microseconds since 1970."""
    by_id: bool = False
    """Whether a row is named by its key and id, and not by its key and start or numbers."""
    rounding_us: int = 0
    """By how much times may be off."""

    def named(self, name: str) -> str:
        """Return a name as SQL quotes it."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote


SPARK = Dialect(
    "`",
    # Whole days, so that no rounding moves a date.
    f"date_from_unix_date(cast((unix_micros({{0}}) - pmod(unix_micros({{0}}), {DAY_US})) / {DAY_US} as int))",
    "unix_micros({})",
)
DUCKDB = Dialect('"', "cast({} at time zone 'UTC' as date)", "epoch_us({})")
TRINO = Dialect(DUCKDB.quote, DUCKDB.date, "cast(to_unixtime({}) * 1e6 as bigint)", by_id=True, rounding_us=1000)
"""Trino reads Delta's times to the millisecond, in which two starts of one key may fall: the id is a hash of the exact one."""


def live_sql(
    dialect: Dialect,
    columns: Sequence[str],
    *,
    of: Changelog = SESSIONS,
    snapshot: str | None = None,
    changelog: str | None = None,
    after: int | None = None,
    where: str | None = None,
    final: str | None = None,
    deleted: bool = False,
    hidden_us: int | str | None = None,
) -> str:
    """Return the query of the latest state of every row: the snapshot's row, unless the changelog has a later one.

    `columns` are the snapshot's; `snapshot` and `changelog` say how the two are called where not by their names. Changes of batches up to `after`,
    the fold point, need not be read; without it they do no harm, since of each row the last change counts, and the
    changelog is trimmed from its beginning only: where it has any change of a row, it has the last one. `where` leaves rows
    out, `final` is the condition that a further column of that name tells. With `deleted` a keyed table's deletions are among
    the rows, and all columns of the snapshot. Rows of a keyed table that were written at `hidden_us`, a number or SQL, or before it
    are left out.
    """
    snapshot, changelog = snapshot or of.snapshot, changelog or of.changes
    identity = (of.key, of.id) if dialect.by_id and not of.keyed else of.identity
    same = " and ".join(f"tail.{name} = stored.{name}" for name in identity)
    part = {of.date: (PART if of.numbered else dialect.date).format(of.start)}
    if of.keyed:
        part = {of.date: "0", DELETED: "op = 'delete'"}
    shown = [name for name in columns if deleted or name not in of.hidden]
    names = [dialect.named(name) for name in shown]
    dated = [f"{part[name]} as {n}" if name in part else n for name, n in zip(shown, names, strict=True)]
    conditions = " and ".join(["op <> 'emit'", *([f"batch_id > {after}"] if after is not None else [])])
    kept, put = (f" and not {DELETED}" if of.keyed else "", " and op = 'upsert'") if not deleted else ("", "")
    if of.keyed and hidden_us is not None:
        written = f"{dialect.micros.format(WRITTEN)} > {hidden_us}"
        kept, put = f"{kept} and ({DELETED} or {written})", f"{put} and (op = 'delete' or {written})"
    live = f"""\
with tail as (
  select * from {changelog} where {conditions}
), ranked as (
  select tail.*, row_number() over (partition by {", ".join(identity)} order by batch_id desc) as _rank from tail
)
select {", ".join(names)} from {snapshot} as stored
where not exists (select 1 from tail where {same}){kept}
union all
select {", ".join(dated)} from ranked where _rank = 1{put}"""
    if where is None and final is None:
        return live
    mark = "" if final is None else f", coalesce({final}, false) as final"
    return f"select *{mark} from (\n{live}\n) as live" + ("" if where is None else f" where {where}")
