"""What is wrong with a pipeline's sinks, as far as it can be seen without a JVM."""

from sessionlake.config.load import Config
from sessionlake.config.problems import Gathered, Problem
from sessionlake.config.secrets import reveal, reveal_all
from sessionlake.config.source import option_texts
from sessionlake.errors import LakeError
from sessionlake.user_code import load_function
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.database_position import postgres_of, url_of
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.sink_position import position_of, table_in


def sink_problems(config: Config) -> list[Problem]:
    """Return unreadable secrets, and a table that no step can go on from. A stream needs none of them, `publish` does."""
    gathered, sink = Gathered(), config.sink.kafka
    if sink is not None:
        with gathered.one():
            reveal("sink.kafka.bootstrap_servers", sink.bootstrap_servers)
        with gathered.one():
            reveal_all("sink.kafka.options", option_texts(sink.options))
    if config.sink.postgres is not None:
        with gathered.one():
            reveal("sink.postgres.url", config.sink.postgres.url)
            url_of(postgres_of(config))
    if config.sink.python is not None:
        with gathered.one():
            load_function("sink.python.call", config.sink.python.call, config.pipeline.code)
    if config.sink.delta is not None:
        with gathered.one():
            require_table(config)
    return gathered.problems


def require_table(config: Config, *, resync: bool = False) -> None:
    """Raise a one-line error if the table of [sink.delta] is not this pipeline's, or no step can go on from it.

    With `resync` the latter does not count. Tables that only Spark can read are left to it.
    """
    try:
        table = table_in(config, Lake)
        position, lake = position_of(table, config), Lake.of(config)
        last = find_last_batch(lake)
        if position is not None and last is not None and not resync:
            position.require(config, lake, table, last)
    except LakeError:
        return
