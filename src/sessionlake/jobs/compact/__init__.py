"""Compaction: the changelog's tail folded into the snapshot, trimmed; the tables' files kept few, in order and swept."""

from sessionlake.jobs.compact.job import JOB, METHODS, compact

__all__ = ["JOB", "METHODS", "compact"]
