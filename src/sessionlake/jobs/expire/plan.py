"""The plan for a run of expire: the tombstones and their append, the same in every attempt."""

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.errors import JobError
from sessionlake.jobs.expire.rule import Rule, wrong_sql
from sessionlake.jobs.run import JobRun
from sessionlake.jobs.tombstones import emitted_tombstones, identity_of, named
from sessionlake.warehouse import schemas
from sessionlake.warehouse.views import merged_rows


@dataclass(frozen=True)
class Plan:
    """A run's tombstones: ranked rows, oldest end first; rows with rank < total are emitted."""

    ranked: DataFrame
    counts: dict[str, int]
    total: int
    chunk: int
    rows_there: DataFrame
    """All rows of the pinned versions."""
    what: str
    """The name of the rows, for people."""
    at_least: int
    """How many there are at the least, by the tables' own statistics."""

    def check_share(self, max_share: float) -> None:
        """Raise JobError if the run would remove more than this share of all there are."""
        if self.total <= max_share * self.at_least:
            return
        every = self.rows_there.count()
        if self.total > max_share * every:
            raise JobError(
                f"expire.max_share: the run would remove {self.total:,} of {every:,} {self.what} ({self.total / every:.0%}), more than {max_share:.0%}; "
                "correct the rule, set --max-per-run, or allow it with --max-share"
            )

    @property
    def steps(self) -> int:
        """How many appends the run makes."""
        return -(-self.total // self.chunk)

    def sent(self, steps: int) -> int:
        """Return how many tombstones the first appends hold."""
        return min(self.total, steps * self.chunk)

    def progress(self, steps: int) -> str:
        """Return how far a run is after these appends, for people."""
        return f"{self.sent(steps):,} of {self.total:,} tombstones"

    def rows(self, step: int) -> DataFrame:
        """Return an append's rows, the same in every attempt."""
        rank = F.col("rank")
        return self.ranked.where((rank >= step * self.chunk) & (rank < self.sent(step + 1)))


def make_plan(run: JobRun, rule: Rule, max_per_run: int | None, chunk: int) -> Plan:
    """Find the rows that expire and rank them by (end, key, start), rows that already have a tombstone last.

    At most `max_per_run` tombstones are planned (None: all), `chunk` of them for each append. Raises JobError for SQL
    that Spark refuses.
    """
    pinned, lake = run.pinned, run.tables
    of = lake.changelog
    there = merged_rows(lake, snapshot_version=pinned[of.snapshot], changelog_version=pinned[of.changes])
    before = emitted_tombstones(lake[schemas.CORRECTIONS].read(pinned[schemas.CORRECTIONS]), of, run.job)
    matched = rule.matching(there, run.started_us, run.pinned["tables"], of)
    if "closed_us" in pinned:
        # A tombstone for a row that is not final would be stale.
        matched = matched.where(F.unix_micros(of.end) < F.lit(pinned["closed_us"]))
    if "final" in pinned:
        matched = matched.where(F.expr(pinned["final"]))
    # Tombstones in a topic are sent to the places of the rows' records.
    place = [name for name in of.record_place if name in there.columns]
    more = place if of.end == of.start else [*place, of.end]
    matched = named(matched, of, *more)
    identity = identity_of(of)
    end = identity[1] if of.end == of.start else of.end
    # Kept, because a sort reads its input twice: the tables would be read twice.
    marked = matched.join(before.withColumn("before", F.lit(True)), identity, "left").persist()
    ordered = marked.orderBy(F.col("before").isNotNull(), end, *identity).withColumn(
        "place", F.monotonically_increasing_id()
    )
    ordered = ordered.persist()
    try:
        parts = _parts(ordered)
    except BaseException as error:
        ordered.unpersist()
        if isinstance(error, PySparkException):
            raise wrong_sql(error) from error
        raise
    finally:
        marked.unpersist()
    emitted_before = sum(old for _, _, old in parts)
    folded, logged = (lake[name].rows(pinned[name]) for name in (of.snapshot, of.changes))
    counts = {
        "rows_read": folded + logged,
        "matched": sum(rows for _, rows, _ in parts),
        "emitted_before": emitted_before,
    }
    new = counts["matched"] - emitted_before
    total = new if max_per_run is None else min(new, max_per_run)
    # The snapshot of a keyed table includes deleted rows, so its size says nothing about the rows that exist.
    at_least, what = (0, "rows") if of.keeps_deletions else (folded - logged, of.snapshot)
    return Plan(ordered.withColumn("rank", _rank(parts)), counts, total, chunk, there, what, at_least)


def _parts(ordered: DataFrame) -> list[tuple[int, int, int]]:
    """For each partition of the ordered rows, return (number, rows, rows with a tombstone)."""
    rows = ordered.groupBy(_part().alias("part")).agg(F.count(F.lit(1)), F.count("before")).orderBy("part").collect()
    return [(row[0], row[1], row[2]) for row in rows]


def _part() -> Column:
    return F.shiftright("place", 33).cast("int")


def _rank(parts: list[tuple[int, int, int]]) -> Column:
    """Return a row's number in the whole order: its place in the partition plus the rows of the partitions before."""
    below, at = [0] * (parts[-1][0] + 1 if parts else 1), 0
    for number, rows, _ in parts:
        below[number], at = at, at + rows
    place = F.col("place").bitwiseAND(F.lit((1 << 33) - 1))
    return place + F.element_at(F.lit(below).cast("array<bigint>"), _part() + 1)
