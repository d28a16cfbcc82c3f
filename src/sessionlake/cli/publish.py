"""The command `publish`."""

from functools import partial
from typing import TYPE_CHECKING

from sessionlake.cli.each import one_by_one, tell_failure
from sessionlake.cli.jobs import command_of
from sessionlake.cli.observed import observed_publisher
from sessionlake.cli.shared import console, has_little_data, open_session
from sessionlake.cli.together import Sessions, open_project_session, tell_restart, tell_wait
from sessionlake.config.graph import Graph
from sessionlake.config.load import Config, load_config
from sessionlake.config.project import Project
from sessionlake.config.source import DATABASE, TABLE, TOPIC
from sessionlake.errors import AwaitedError, ConfigError, NoBatchesError, NotNeededError
from sessionlake.jobs.registry import BY_NAME
from sessionlake.stopping import put_off

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from sessionlake.jobs.publish import Step


def publish_project(project: Project, *, once: bool, only: str | None, resync: bool) -> None:
    """Publish all pipelines of a project that have a sink: one after the other, or all until stopped, each in a thread."""
    from sessionlake.jobs.publish import resynced

    served = {name: _sinks(config, only) for name, config in project.configs.items()}
    names = [name for name, sinks in served.items() if sinks]
    if not names:
        section = "[sink.kafka], [sink.delta], [sink.postgres] or [sink.python]" if only is None else f"[sink.{only}]"
        raise ConfigError(f"sink: no pipeline of {project.directory!r} has one to serve; add {section} to its file")
    loading = {name: resynced(project.configs[name], served[name]) for name in names}
    if resync and not any(loading.values()):
        raise ConfigError(
            f"--resync: no pipeline of {project.directory!r} has a sink that can be loaded again; leave it out"
        )
    if once:
        each = partial(_publish_member, once=True, only=only, resync=resync)
        one_by_one(BY_NAME["publish"].name, each, project, {})
        return
    chosen = project.only(names)
    spark = open_project_session(chosen, little_java=False)
    with put_off() as asked:
        from sessionlake.project.together import Together

        work = _Publishers(spark, chosen, only, {name: {*sinks} for name, sinks in loading.items()} if resync else {})
        # None waits for another one: each follows what its own pipeline has committed.
        Together(Graph(tuple(names), ()), work, asked, work.failed, work.waits).until_stopped()
    if asked.is_set():
        raise KeyboardInterrupt


def _sinks(config: Config, only: str | None) -> list[str]:
    return [sink for sink in config.sink.targets if only in (None, sink)]


def _publish_member(config_path: str, *, once: bool, only: str | None, resync: bool) -> None:
    """Publish one pipeline of a project; NotNeededError if it has no such sink."""
    from sessionlake.jobs.publish import resynced

    config = load_config(config_path)
    sinks = _sinks(config, only)
    if not sinks:
        raise NotNeededError("sink: is missing, so there is nothing to publish")
    loads = resync and bool(resynced(config, sinks))
    _publish(config, partial(_session, config, once=once), once=once, only=only, resync=loads)


class _Publishers:
    """The work of each pipeline's thread until the command is stopped, and the lines about it."""

    def __init__(self, spark: "SparkSession", project: Project, only: str | None, loading: dict[str, set[str]]) -> None:
        self._members, self._only, self._loading = project.members, only, loading
        self._sessions, self._width = Sessions(spark), max(map(len, project.members))

    def __call__(self, name: str) -> None:
        """Publish a pipeline under its config as it is now; AwaitedError if it has no batches yet."""
        config = load_config(self._members[name].path)
        loading = self._loading.get(name, set())
        try:
            _publish(
                config,
                lambda: self._sessions.of(name, config),
                once=False,
                only=self._only,
                resync=bool(loading),
                loaded=loading.discard,
                prefix=f"{name:<{self._width}}  ",
            )
        except NoBatchesError as error:
            raise AwaitedError(str(error)) from error

    def failed(self, name: str, error: Exception, wait_s: float | None) -> None:
        """Tell of a failure in the lines that the pipeline's own `publish` would print."""
        tell_failure(name, error, self._members[name].path)
        if wait_s is not None:
            tell_restart(name, wait_s)

    def waits(self, name: str, error: AwaitedError) -> None:
        """Tell that a pipeline has no batches yet."""
        tell_wait(self._members[name], error)


@command_of("publish", of_project=publish_project)
def publish_command(config_path: str, once: bool, only: str | None, resync: bool) -> None:  # noqa: FBT001 (click passes flags by name)
    """Publish, a line a batch."""
    config = load_config(config_path)
    _publish(config, partial(_session, config, once=once), once=once, only=only, resync=resync)


def _session(config: Config, *, once: bool) -> "SparkSession":
    return open_session(config, little_java=once and has_little_data(config))


def _publish(
    config: Config,
    session: "Callable[[], SparkSession]",
    *,
    once: bool,
    only: str | None,
    resync: bool,
    loaded: "Callable[[str], None]" = lambda _: None,
    prefix: str = "",
) -> None:
    """Publish a pipeline, a line a batch. `loaded` is called with each sink that has made a step."""
    from sessionlake.jobs.publish import publish, sinks_of
    from sessionlake.preflight.sinks import require_table

    sinks = sinks_of(config, only, resync=resync)  # before Spark, which takes seconds to start
    if TABLE in sinks:
        require_table(config, resync=resync)
    with observed_publisher(config) as batch_done:

        def show(number: int, everything: bool) -> None:  # noqa: FBT001
            told = f"all {config.operator}s" if everything else "changes"
            console.print(f"{prefix}batch {number:>4}  {told} published")
            batch_done()

        def show_step(name: str, step: "Step") -> None:
            rows = "all rows" if step.rows is None else f"{step.rows:,} rows and {step.deleted:,} deletes"
            written = "written" if name in (TABLE, DATABASE) else "sent"
            console.print(f"{prefix}{name} at batch {step.batch_id}  {rows} {written}")
            loaded(name)
            batch_done()

        published = publish(session(), config, once=once, only=only, resync=resync, on_batch=show, on_step=show_step)
    in_steps = config.sink.kafka is not None and config.sink.kafka.transactions
    if TOPIC in sinks and not in_steps:
        console.print(f"{published.batches} batches published")
    if published.steps or in_steps or {*sinks} - {TOPIC}:
        console.print(f"{published.steps} steps")
