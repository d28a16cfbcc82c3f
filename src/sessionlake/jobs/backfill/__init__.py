"""Backfill: compute the sessions of a date range from the events again, and correct those that differ."""

from sessionlake.jobs.backfill.job import backfill

__all__ = ["backfill"]
