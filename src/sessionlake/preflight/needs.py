"""Commands' requirements, checked before Spark starts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Needs:
    """The requirements of a command, besides valid aggregates and SQL."""

    source: bool = False
    """The source, with the columns that the config names."""
    tables: bool = False
    """Tables that were made with these settings, or none."""
    drops: bool = False
    """Tables may have aggregates that the config lacks: they are dropped."""
    lookups: bool = False
    """Tables to look up also if batches have an earlier version of them, with which a stream goes on."""
    room: bool = False
    """A warehouse and a store that can be written."""


OF_STREAM = Needs(source=True, tables=True, room=True)
OF_CHECK = Needs(source=True, tables=True, lookups=True, room=True)
OF_REBUILD = Needs(source=True, room=True)
OF_REBUILD_FROM_ARCHIVE = Needs(room=True)
OF_JOB = Needs()
