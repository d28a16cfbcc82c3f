"""A status to be shown."""

from sessionlake.jobs.late.status import LateStatus
from sessionlake.observe.status import Status
from sessionlake.warehouse import schemas

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000
NOW = 1_700_000_000_000_000
STATUS = Status(
    batch_id=1,
    watermark_us=NOW - MINUTE,
    committed_us=NOW - MINUTE,
    counts=dict.fromkeys(schemas.COUNTS, 0),
    reconciles=True,
    late=LateStatus(0, 0, 0, 0, reconciles=True),
    rows=None,
    expiry_lag_us=None,
    cleanup_round_us=None,
    store_bytes=0,
    store_dir="store",
    checkpoint="checkpoint",
    changelog_version=1,
    last_batches=[],
)
