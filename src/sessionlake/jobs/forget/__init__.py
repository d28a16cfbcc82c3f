"""The right to erasure: all that is kept of some keys removed from tables, files, logs and stores, and proved gone."""

from sessionlake.jobs.forget.job import check, forget
from sessionlake.jobs.forget.wait_budget import WaitBudget

__all__ = ["WaitBudget", "check", "forget"]
