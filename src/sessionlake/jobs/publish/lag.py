"""Back-pressure: a stream takes no batch while the topic is more than `max_lag` batches behind it.

In Samza an operator blocks its input if the operator downstream refuses outputs. Here the changelog always holds the
outputs, and `max_lag` bounds how far the topic may fall behind.
"""

import logging
from itertools import islice
from threading import Event

from sessionlake.config.load import Config
from sessionlake.stream.run import Gate
from sessionlake.warehouse.batches import batches_after
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.topic_position import published_version

_EVERY_S = 0.5
_log = logging.getLogger("sessionlake")


def lag(tables: Tables, config: Config, most: int) -> int:
    """Return how many batches are not in the topic yet; of more than `most` no more are counted than one."""
    return sum(1 for _ in islice(batches_after(tables, published_version(tables, config)), most + 1))


def _is_behind(tables: Tables, config: Config, most: int) -> bool:
    """Say whether more than `most` batches are not in the topic yet. If the versions show that there are fewer, no batch is read."""
    versions = tables[tables.changelog.changes].latest_version() - published_version(tables, config)
    return versions > most and lag(tables, config, most) > most


def held_back(tables: Tables, config: Config) -> Gate:
    """Return a function that waits, before a batch, until the topic is at most `sink.kafka.max_lag` batches behind.

    It reports once that it waits, and once that it goes on.
    """
    sink = config.sink.kafka
    if sink is None or sink.max_lag is None:
        return lambda _: None
    most = sink.max_lag

    def wait(ending: Event) -> None:
        waited = False
        while _is_behind(tables, config, most) and not ending.wait(_EVERY_S if waited else 0):
            if not waited:
                _log.warning(
                    "sink.kafka.max_lag: topic %r is more than %d batches behind; the stream waits for `sessionlake publish`, and loses nothing",
                    sink.topic,
                    most,
                )
            waited = True
        if waited and not ending.is_set():
            _log.warning("sink.kafka.max_lag: topic %r has caught up; the stream goes on", sink.topic)

    return wait
