"""`sessions_live` as SQL: one text for Spark and DuckDB here, and for other engines by `sessionlake views`."""

from collections.abc import Sequence
from dataclasses import dataclass

from sessionlake.schemas import CHANGELOG, SESSIONS

FOLD = "sessionlake.fold"
"""Delta's txnAppId of the commits that fold the changelog into the snapshot; their txnVersion is the batch_id reached."""
DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Dialect:
    """What differs from one engine's SQL to another's."""

    quote: str
    date: str
    """The UTC date of session_start, whatever the session's time zone."""
    micros: str
    """A time in whole microseconds since 1970."""
    identity: tuple[str, str] = ("session_key", "session_start")
    """The columns that name a session."""
    rounding_us: int = 0
    """By how much times may be off."""

    def named(self, name: str) -> str:
        """Return a name as SQL quotes it."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote


SPARK = Dialect(
    "`",
    # Whole days, so that no rounding moves a date.
    f"date_from_unix_date(cast((unix_micros(session_start) - pmod(unix_micros(session_start), {DAY_US})) / {DAY_US} as int))",
    "unix_micros({})",
)
DUCKDB = Dialect('"', "cast(session_start at time zone 'UTC' as date)", "epoch_us({})")
TRINO = Dialect(
    DUCKDB.quote, DUCKDB.date, "cast(to_unixtime({}) * 1e6 as bigint)", ("session_key", "session_id"), rounding_us=1000
)
"""Trino reads Delta's times to the millisecond, in which two starts of one key may fall: the id is a hash of the exact one."""


def live_sql(
    dialect: Dialect,
    columns: Sequence[str],
    *,
    snapshot: str = SESSIONS,
    changelog: str = CHANGELOG,
    after: int | None = None,
    where: str | None = None,
) -> str:
    """Return the query of the latest state of every session: the snapshot's row, unless the changelog has a later one.

    `columns` are the snapshot's; `snapshot` and `changelog` what the two are called. Changes of batches up to `after`,
    the fold point, need not be read; without it they do no harm, since of each session the last change counts, and the
    changelog is trimmed from its beginning only: where it has any change of a session, it has the last one.
    """
    key, start = dialect.identity
    names = [dialect.named(name) for name in columns]
    dated = [f"{dialect.date} as {n}" if name == "session_date" else n for name, n in zip(columns, names, strict=True)]
    conditions = " and ".join(["op <> 'emit'", *([f"batch_id > {after}"] if after is not None else [])])
    live = f"""\
with tail as (
  select * from {changelog} where {conditions}
), ranked as (
  select tail.*, row_number() over (partition by {key}, {start} order by batch_id desc) as _rank from tail
)
select {", ".join(names)} from {snapshot} as stored
where not exists (select 1 from tail where tail.{key} = stored.{key} and tail.{start} = stored.{start})
union all
select {", ".join(dated)} from ranked where _rank = 1 and op = 'upsert'"""
    return live if where is None else f"select * from (\n{live}\n) as live where {where}"
