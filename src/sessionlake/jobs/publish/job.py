"""Results to the sinks of a config: records of a compacted Kafka topic, the rows of tables of Delta and PostgreSQL, and calls of a function."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import SparkSession

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.config.source import DATABASE, FUNCTION, TABLE, TOPIC, KafkaSink
from sessionlake.errors import ConfigError, NoBatchesError, SessionlakeError
from sessionlake.jobs.publish.changes import pin_version, publish_changes
from sessionlake.jobs.publish.database import PostgresTable
from sessionlake.jobs.publish.errors import ERRORS, ErrorsTopic
from sessionlake.jobs.publish.final import publish_final
from sessionlake.jobs.publish.function import PythonFunction, python_of
from sessionlake.jobs.publish.records import OnBatch, OnTurn, topic_of
from sessionlake.jobs.publish.steps import Step, Stepped
from sessionlake.jobs.publish.table import SinkTable
from sessionlake.jobs.publish.transactions import TransactionalTopic, forget_position
from sessionlake.stopping import pause
from sessionlake.warehouse.batches import changelogs_in, check_history
from sessionlake.warehouse.database_position import postgres_of
from sessionlake.warehouse.sink_position import sink_of as table_of
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.topic_position import published_in

_POLL_S, _LONGEST_PAUSE_S = 1.0, 60.0
_log = logging.getLogger("sessionlake")
OnStep = Callable[[str, Step], None]
"""Called after each step, with the sink's name."""
ToTopic = Callable[..., tuple[int, bool]]
"""Publishes to a topic without transactions; the keyword `meanwhile` is called about every second."""
STEPPED: dict[str, Callable[[Tables, Config], Stepped]] = {
    TABLE: SinkTable,
    DATABASE: PostgresTable,
    FUNCTION: PythonFunction,
}
"""The sinks that get the rows by which two batches differ, by their names."""


@dataclass(frozen=True)
class Published:
    """The counts of a run."""

    batches: int
    """How often records were sent to the topic."""
    from_the_beginning: bool
    """Whether the run began by sending all there was to the topic."""
    steps: int = 0
    """How many steps the other sinks have made."""


def publish(
    spark: SparkSession,
    config: Config,
    *,
    once: bool = False,
    only: str | None = None,
    resync: bool = False,
    on_batch: OnBatch = lambda *_: None,
    on_step: OnStep = lambda *_: None,
) -> Published:
    """Publish all results at the first start, and from then on changes, until stopped or, with `once`, up to now.

    `only` names the one sink that is served: `kafka`, `delta`, `postgres` or `python`. To a topic at least once: after a crash records are sent
    again. A reader may for a moment see an older state, until the newer one is sent again. A topic that was recreated gets
    all rows again. With emit = "final" each row is sent when it closes, and again only if it changes after that.
    The table of [sink.delta] or [sink.postgres] equals the results as of a batch at each moment; with `resync` all of its
    rows are replaced first. If a sink fails, the others are served all the same: with `once` its error is raised in the end, otherwise
    it is tried again, unless it is the only one. The function of [sink.python] gets each difference at least once, and with `resync` all rows.
    """
    sinks = sinks_of(config, only, resync=resync)
    tables = Tables.of(spark, config)
    of = tables.changelog
    if not tables[of.changes].exists():
        raise NoBatchesError(
            f"pipeline.warehouse: {config.pipeline.warehouse!r} has no {of.snapshot} yet; run `sessionlake run` first"
        )
    check_history(tables, changelogs_in(tables))
    if not {*of.key_columns} <= {*tables[of.changes].read().columns}:
        # Tables of 0.2 lack them, and records of a topic go on with the key that they have.
        tables = tables.seen_by(replace(of, key_columns=()))
    of_config = partial(Steps, on_step=on_step, pipeline=config.pipeline.name)
    kept = [of_config(name, make(tables, config), resync=resync) for name, make in STEPPED.items() if name in sinks]
    kept += _steps_of_topics(tables, config, of_config, resync=resync) if TOPIC in sinks else []

    streams = TOPIC in sinks and not sink_of(config).transactions
    to_topic = partial(_to_topic, tables, config, once=once, on_batch=on_batch) if streams else None
    sent = (_serve_once if once else _serve)(kept, to_topic)
    return Published(*sent, sum(one.made for one in kept))


def _serve_once(kept: Sequence["Steps"], to_topic: ToTopic | None) -> tuple[int, bool]:
    """Serve each sink once, the topic first; then raise the first error, if there was one."""
    sent, errors = (0, False), list[SessionlakeError]()
    if to_topic is not None:
        try:
            sent = to_topic(meanwhile=lambda: None)
        except SessionlakeError as error:
            errors.append(error)
    errors += [failed for one in kept if (failed := one.tried()) is not None]
    for more in errors[1:]:
        _log.warning("sessionlake: %s", more)
    if errors:
        raise errors[0]
    return sent


def _serve(kept: Sequence["Steps"], to_topic: ToTopic | None) -> tuple[int, bool]:
    """Serve all sinks until the process is stopped."""

    def turn() -> None:
        for one in kept:
            one.turn(alone=len(kept) == 1 and to_topic is None)

    sent = (0, False) if to_topic is None else to_topic(meanwhile=turn)
    while kept:
        turn()
        pause(_POLL_S)
    return sent


def sinks_of(config: Config, only: str | None = None, *, resync: bool = False) -> list[str]:
    """Return the names of the sinks to serve; ConfigError in one line if a sink is missing."""
    there = list(config.sink.targets) if only is None else [only]
    if not there:
        raise ConfigError(
            "sink: is missing; add [sink.kafka] with bootstrap_servers and topic, [sink.delta] with path, [sink.postgres] with url and table, or [sink.python] with call"
        )
    if TOPIC in there:
        sink_of(config)
    if TABLE in there:
        table_of(config)
    if DATABASE in there:
        postgres_of(config)
    if FUNCTION in there:
        python_of(config)
    if resync and not resynced(config, there):
        raise ConfigError(
            "--resync: loads all rows of [sink.delta], [sink.postgres] or [sink.python] again, and of [sink.kafka] with transactions; a topic that is recreated gets all rows"
        )
    return there


def resynced(config: Config, sinks: Sequence[str]) -> list[str]:
    """Return those of some sinks that get their rows again by `resync`: not a topic without transactions."""
    topic = config.sink.kafka
    return [sink for sink in sinks if sink in STEPPED or (sink == TOPIC and topic is not None and topic.transactions)]


@dataclass
class Steps:
    """A sink's steps while a process runs: at most one step in the time `every`."""

    name: str
    sink: Stepped
    on_step: OnStep
    pipeline: str
    resync: bool = False
    made: int = 0
    _next: float = field(default=0.0, init=False)
    _pause_s: float = field(default=_POLL_S, init=False)

    def make(self) -> None:
        """Make a step, if there is a newer batch."""
        step = self.sink.step(anew=self.resync)
        self.resync = False
        if step is not None:
            self.made += 1
            self._next = time.monotonic() + parse_duration(self.sink.every) / 1e6
            self.on_step(self.name, step)

    def tried(self) -> SessionlakeError | None:
        """Make a step, if there is a newer batch; return the error that it ends with."""
        try:
            self.make()
        except SessionlakeError as error:
            return error
        return None

    def turn(self, *, alone: bool = True) -> None:
        """Make a step if it is due. Unless the sink is `alone`, a failed step is logged and tried again later, and the other sinks go on."""
        if time.monotonic() < self._next:
            return
        error = self.tried()
        if error is None:
            self._pause_s = _POLL_S
            return
        if alone:
            raise error
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._next = time.monotonic() + self._pause_s
        _log.warning(
            "sessionlake: %s (sink %r of %r; the others go on, and it is tried again in %d s)",
            error,
            self.name,
            self.pipeline,
            self._pause_s,
        )


def _steps_of_topics(tables: Tables, config: Config, of_config: Callable[..., Steps], *, resync: bool) -> list[Steps]:
    """Return the steps of topics: of the results if they are transactions, and of errors if there is a topic for them."""
    sink, found = sink_of(config), list[Steps]()
    if sink.transactions:
        found.append(of_config(TOPIC, TransactionalTopic(tables, config, sink), resync=resync))
    if sink.errors is not None:
        found.append(of_config(ERRORS, ErrorsTopic(tables, config, sink, sink.errors)))
    return found


def _to_topic(tables: Tables, config: Config, *, once: bool, on_batch: OnBatch, meanwhile: OnTurn) -> tuple[int, bool]:
    """Publish to the topic; return how often records were sent, and whether from the beginning on."""
    sink = sink_of(config)
    topic = topic_of(tables.spark, sink)
    forget_position(tables.spark, sink)
    checkpoint = f"{published_in(config)}/{sink.topic}-{topic.id}"
    pin_version(tables, checkpoint)
    follow = publish_final if config.publishes_final else publish_changes
    return follow(tables, config, sink, checkpoint, once=once, on_batch=on_batch, meanwhile=meanwhile)


def sink_of(config: Config) -> KafkaSink:
    """Return the topic to publish to; ConfigError if there is none."""
    if config.sink.kafka is None:
        raise ConfigError("sink.kafka: is missing; add [sink.kafka] with bootstrap_servers and topic")
    for key, topic in (("topic", config.sink.kafka.topic), ("errors", config.sink.kafka.errors)):
        inputs = (side.source for side in config.inputs.values() if side.source.entry.has_topic)
        if topic is not None and any(source.matching([topic]) for source in inputs):
            raise ConfigError(f"sink.kafka.{key}: {topic!r} is the source's topic; write another one")
    return config.sink.kafka
