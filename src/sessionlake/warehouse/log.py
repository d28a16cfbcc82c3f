"""The tables' logs, read through Hadoop: what `DeltaLog` makes of files, over the files of `Files`."""

from sessionlake.warehouse.delta_log import DeltaLog
from sessionlake.warehouse.filesystem import Files


class Log(Files, DeltaLog):
    """The logs of a warehouse's tables."""

    def has(self, name: str, version: int) -> bool:
        """Say whether the log has a version's commit, without reading it."""
        fs, path = self.file_system(self._file(name, version))
        return bool(fs.exists(path))
