"""Aggregates: declared, named, mergeable, typed; one definition serves the stream, the batch jobs and SQL.

They merge groups of rows and know nothing of windows or sessions. docs/aggregates.md lists them.
"""

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.spec import AggregateSpec, build_aggregates

__all__ = ["Aggregate", "AggregateSpec", "Events", "States", "build_aggregates"]
