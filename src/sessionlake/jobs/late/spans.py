"""Which late events runs of jobs cover, as SQL conditions that Spark and DuckDB both read.

A run *covers* the late events of its batches and its times once its append is in the table that takes them: those in
retention when it started in corrections, the others in dead_letters. The conditions are about rows of late_events;
DuckDB knows Spark's `unix_micros` by a macro.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sessionlake.errors import JobError
from sessionlake.jobs.again.runs import RecordedRun
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import FENCED
from sessionlake.warehouse.dialects import Dialect

REPROCESS_LATE, BACKFILL = "reprocess_late", "backfill"
WRITES = {REPROCESS_LATE: (schemas.CORRECTIONS, schemas.DEAD_LETTERS), BACKFILL: (schemas.CORRECTIONS,)}
"""The jobs that cover late events, and the tables whose appends make them do so."""
_EVER = 1 << 62


@dataclass(frozen=True)
class Span:
    """Late events of batches up to `batch_id`, inclusive, and of times from inclusive to exclusive."""

    batch_id: int
    from_us: int
    to_us: int

    def holds(self) -> str:
        """Return the condition on a late event."""
        time = "unix_micros(event_time)"
        return f"(batch_id <= {self.batch_id} and {time} >= {self.from_us} and {time} < {self.to_us})"

    def within(self, other: "Span") -> bool:
        """True if the other span holds every event of this span."""
        return self.batch_id <= other.batch_id and self.from_us >= other.from_us and self.to_us <= other.to_us


class LateRun(RecordedRun):
    """A run that covers late events, or will once it has appended."""

    @property
    def asked(self) -> Span:
        """The late events that the run was asked for."""
        return Span(self.pinned["batch_id"], *requested_times(self.pinned["from_us"], self.pinned["to_us"]))

    @property
    def expired_us(self) -> int:
        """The horizon of retention when the run started: older events had fallen out of it."""
        horizon: int = self.pinned["expired_us"]
        return horizon

    def covers(self) -> list[Span]:
        """Return the spans whose events the run has covered."""
        asked = self.asked
        done = [self.versions[table] not in (None, FENCED) for table in WRITES[self.job]]
        if all(done):
            return [asked]
        kept = Span(asked.batch_id, max(asked.from_us, self.expired_us), asked.to_us)
        expired = Span(asked.batch_id, asked.from_us, min(asked.to_us, self.expired_us))
        return [span for span, is_done in zip((kept, expired), done, strict=False) if is_done]


def requested_times(from_us: int | None, to_us: int | None) -> tuple[int, int]:
    """Return a range of times, unbounded if None."""
    return (-_EVER if from_us is None else from_us), (_EVER if to_us is None else to_us)


def check_range(from_us: int | None, to_us: int | None) -> None:
    """Raise JobError if a range of times, unbounded if None, is empty."""
    if from_us is not None and to_us is not None and from_us >= to_us:
        raise JobError("--from: must be before --to; nothing lies between them")


def covered(runs: Sequence[LateRun], stale_at: Mapping[tuple[str, str], str]) -> str:
    """Return the condition that one of the runs, given in their order, covers a late event.

    `stale_at` names, by backfill with stale replacements, the column that has the batch which refused its put if the
    event lies, else null. An event there is not covered by the backfill that wrote it, nor by runs that left it out
    because they could not know yet.
    """
    plain = _any(span.holds() for span in widest(span for run in runs for span in run.covers()))
    if not stale_at:
        return plain
    touched = _any(f"{mark} is not null" for mark in stale_at.values())
    return f"(case when {touched} then {_any(_knowing(runs, stale_at))} else {plain} end)"


def _knowing(runs: Sequence[LateRun], stale_at: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """Yield conditions for runs that cover an event of stale puts: neither the backfill itself nor runs that relied on its puts."""
    before: list[str] = []
    spans: list[list[Span]] = [[] for _ in range(len(stale_at) + 1)]
    for run in runs:
        mark = stale_at.get((run.job, run.run_id))
        if mark is None:
            spans[len(before)] += run.covers()
        else:
            yield f"({_any(span.holds() for span in run.covers())} and {mark} is null)"
            before.append(mark)
    for stale, held in enumerate(spans):
        for span in widest(held):
            known = (f"({mark} is null or {mark} <= {span.batch_id})" for mark in before[:stale])
            yield f"({' and '.join((span.holds(), *known))})"


def widest(spans: Iterable[Span]) -> list[Span]:
    """Leave out spans that lie within others: of daily runs over everything, a single span remains."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda s: (-s.batch_id, s.from_us, -s.to_us)):
        if not any(span.within(other) for other in found):
            found.append(span)
    return found


def _any(conditions: Iterable[str]) -> str:
    return f"({' or '.join(conditions) or 'false'})"


EXPIRED_BY_RUNS = "batch_id is null and kind = 'event' and reason = 'expired'"
"""Which dead letters are late events that runs of reprocess_late found expired."""


def refused(outcomes: str) -> str:
    """Return the query of the corrections that batches refused: correction_id, kind, outcome, batch_id."""
    return f"select correction_id, kind, outcome, batch_id from {outcomes} where outcome <> '{schemas.APPLIED}'"


def stale_puts(dialect: Dialect, corrections: str, refused: str, as_of: int) -> str:
    """Return the query of the puts of backfills' replacements that batches up to `as_of` refused, which `refused` lists.

    Its columns are run_id, put_key, from_us and to_us, microseconds and inclusive, and stale_at, the batch that refused it.
    """
    start, end = (dialect.micros.format(f"put.{name}") for name in ("start_time", "end_time"))
    # Of slices that have left the stores a replacement is expired: the events that it would have taken in wait as well.
    return f"""
        select run_id, key as put_key, {start} as from_us, {end} as to_us, stale_at
        from (
            select written.run_id, written.key, refused.batch_id as stale_at, {dialect.unnest.format("written.put")} as put
            from {corrections} as written join {refused} as refused on written.correction_id = refused.correction_id
            where written.job = '{BACKFILL}' and written.kind = 'replace'
            and refused.outcome in ('{schemas.STALE}', '{schemas.EXPIRED}') and refused.batch_id <= {as_of}
        ) as puts
    """
