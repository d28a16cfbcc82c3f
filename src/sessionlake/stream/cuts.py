"""A change of settings from an event time on: no result and no correction may have come to that time (docs/rules.md, rule 244)."""

from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.stream.changes import Class, changes
from sessionlake.stream.kind import Kind
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import rows_meeting


def check_cut(tables: Tables, config: Config, kind: type[Kind], last: BatchCommit | None) -> bool:
    """Say whether a run takes such a change; PipelineStateError if its time has been reached.

    A redeemed event may lie after the watermark, and does not move it.
    """
    if last is None or all(change.of != Class.CUT for change in changes(config, last, kind.bound_settings())):
        return False
    reached = _reached(tables, config, kind, last)
    if reached is not None and not config.section.same_until(last.settings.rebuild, reached):
        told = "the latest event of a result, or of a correction that no batch has taken"
        line = config.section.cut_too_early(last.settings.rebuild, reached, told)
        raise PipelineStateError(
            line or f"{config.operator}.before: events have come to its times; restore the old value"
        )
    return True


def _reached(tables: Tables, config: Config, kind: type[Kind], last: BatchCommit) -> int | None:
    """Return the greatest time of results and of waiting corrections after the watermark; None if there is none."""
    of, *_ = kind.changelogs_in(config)
    after = 0 if last.watermark_us is None else last.watermark_us + 1
    stored = rows_meeting(tables, after, of=of).agg(F.max(F.unix_micros(of.end))).head()
    taken = tables[schemas.CORRECTION_OUTCOMES].read().select("correction_id")
    put = F.array_max(F.transform("put", lambda one: one["end_time"]))
    waiting = tables[schemas.CORRECTIONS].read().where("kind in ('restate', 'replace')")
    ends = (
        waiting.join(taken, "correction_id", "left_anti").agg(F.max(F.unix_micros(F.greatest("end_time", put)))).head()
    )
    return max((row[0] for row in (stored, ends) if row is not None and row[0] is not None), default=None)
