"""The tables' logs, read through Hadoop."""

from sessionlake.delta_log import DeltaLog
from sessionlake.tables.files import Files


class Log(Files, DeltaLog):
    """The logs of a warehouse's tables."""
