"""Aggregates: declared, named, mergeable, typed; one definition serves the stream, the batch jobs and SQL.

They know groups of rows and no windows: whatever an operator groups, they merge. docs/aggregates.md lists them.
"""

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.spec import AggregateSpec, build_aggregates

__all__ = ["Aggregate", "AggregateSpec", "Events", "States", "build_aggregates"]
