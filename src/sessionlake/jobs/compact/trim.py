"""Trim: changes leave the changelog once they have been in the snapshot for longer than the safety window.

So do the rows that they replaced, and old events leave the archive.
"""

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.jobs.compact.upkeep import Upkeep
from sessionlake.jobs.expire.tombstone_sender import first_unsent_batch
from sessionlake.stream.kinds import kind_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.schemas import YEAR_1_US
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import ARCHIVED_FROM, fold_point

STEP = "trim"


def trim_point(tables: Tables, config: Config, now_us: int) -> int | None:
    """Return the last batch whose changes may leave the changelog: the fold point when the safety window began; None if there is none.

    If the log does not reach back that far, no change may leave. Changes whose tombstones are still to be sent to a
    topic stay, too.
    """
    before_ms = (now_us - parse_duration(config.compact.safety)) // 1000
    snapshot = tables.changelog.snapshot
    for version in tables[snapshot].versions():
        info = tables[snapshot].commit_info(version)
        if info is not None and info["timestamp"] <= before_ms:
            point, untold = fold_point(tables, version), first_unsent_batch(tables, config)
            return point if point is None or untold is None else min(point, untold - 1)
    return None


def trim(upkeep: Upkeep, table: str, until: int) -> None:
    """Delete the rows of batches up to and including `until`."""
    upkeep.delete(table, STEP, f"batch_id <= {until}", trimmed_to=until)


def unneeded(tables: Tables, config: Config) -> dict[str, str]:
    """Return by table the SQL of rows that nothing is computed of any more (`Kind.unneeded`, and identities beyond retention)."""
    kind, state = kind_of(config), dict(last_batch(tables).state)
    old = f"event_time < timestamp_micros({max(kind.expired_us(config, state), YEAR_1_US)})"
    ids = [name for name in (schemas.EVENT_IDS, schemas.DUPLICATES) if tables[name].exists()]
    return {**kind.unneeded(config, state), **dict.fromkeys(ids, old)}


def archive_point(tables: Tables, config: Config) -> int | None:
    """Return the event time in microseconds before which events leave the archive; None if none does."""
    watermark = last_batch(tables).watermark_us
    if config.compact.archive is None or watermark is None or not tables[schemas.EVENTS].exists():
        return None
    point = int(watermark) - parse_duration(config.compact.archive)
    # The point becomes the version of a Delta application, for which -1 means none.
    return point if point >= 0 else None


def older_events(point: int) -> str:
    """Return the condition of events before a point."""
    return f"event_time < timestamp_micros({point})"


def trim_archive(upkeep: Upkeep, config: Config) -> None:
    """Delete the archive's events that are older than the config keeps them; first the table says from when on it is whole."""
    point = archive_point(upkeep.tables, config)
    if point is None:
        return
    for name in (name for name in (schemas.EVENTS, schemas.SOURCE_ROWS) if upkeep.tables[name].exists()):
        upkeep.tables[name].set_app_versions({ARCHIVED_FROM: lambda old: point if point > old else None})
        failpoints.hit("compact_archive_marked")
        upkeep.delete(name, STEP, older_events(point), archived_from_us=point)
