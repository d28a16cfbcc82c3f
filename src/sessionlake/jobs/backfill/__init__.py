"""Backfill: compute a date range's sessions from the events again, and correct the sessions that differ."""

from sessionlake.jobs.backfill.job import backfill

__all__ = ["backfill"]
