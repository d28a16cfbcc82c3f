"""Backups: a running pipeline's tables and checkpoint as of one committed batch, and put back from there."""

from sessionlake.jobs.backup.backup import backup
from sessionlake.jobs.backup.restore import restore

__all__ = ["backup", "restore"]
