"""Look at a pipeline's tables again and again, without reading them again while nothing has changed."""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

import duckdb
from deltalake.exceptions import DeltaError

from sessionlake.config.load import Config
from sessionlake.errors import SessionlakeError
from sessionlake.warehouse import schemas
from sessionlake.warehouse.lake import Lake

PASSING = (SessionlakeError, DeltaError, duckdb.Error, OSError)
"""Errors of a look while tables are made, replaced or removed; the next look may succeed."""
Found = TypeVar("Found")


class Watch(Generic[Found]):
    """The latest result of `read`, which is called again if a table has a new version; otherwise `again` brings up to date what needs none."""

    def __init__(
        self,
        config: Config,
        read: Callable[[Config], Found],
        again: Callable[[Config, Found], Found] = lambda _, found: found,
    ) -> None:
        self._config, self._read, self._again = config, read, again
        self._lake = Lake.of(config)
        self._seen: tuple[dict[str, int], Found] | None = None

    def look(self) -> Found:
        """Return the result for the tables' present versions. It may raise one of PASSING; the next call then reads again."""
        names = (*self._lake.changelog.tables, *schemas.SHARED)
        versions = {name: self._lake[name].latest_version() for name in names}
        if self._seen is None or self._seen[0] != versions:
            self._seen = None
            result = self._read(self._config)
            self._seen = (versions, result)
            return result
        return self._again(self._config, self._seen[1])


def pause_until(moment: float) -> None:
    """Sleep until a moment of the monotonic clock; not at all if it is past."""
    time.sleep(max(0.0, moment - time.monotonic()))
