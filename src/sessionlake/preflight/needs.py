"""What commands are to find before they start Spark."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Needs:
    """What a command is to find, beside aggregates and SQL that can be computed."""

    source: bool = False
    """The source, with the columns that the config names."""
    tables: bool = False
    """Tables that were made with these settings, or none."""
    room: bool = False
    """A warehouse and a store that can be written."""


OF_STREAM = Needs(source=True, tables=True, room=True)
OF_REBUILD = Needs(source=True, room=True)
OF_JOB = Needs()
