"""`run` of a project: all its pipelines in one process, with one Java."""

import json
import os
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from sessionlake.cli.each import tell_failure, worst
from sessionlake.cli.failures import error_lines, with_place
from sessionlake.cli.observed import StreamMetrics, observed
from sessionlake.cli.progress import CHECKING, progress
from sessionlake.cli.shared import console, open_session, show_warnings
from sessionlake.cli.stream import (
    both,
    is_little,
    print_batch,
    print_summary,
    print_unpublished,
    stream_on,
    stream_once,
)
from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config, load_config
from sessionlake.config.project import Member, Project, load_project
from sessionlake.extras import require_versions
from sessionlake.jobs.registry import STREAM_RUN
from sessionlake.stopping import put_off

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.errors import AwaitedError
    from sessionlake.project.together import Ended
    from sessionlake.stream.run import RunSummary
    from sessionlake.warehouse.batch_commit import BatchCommit

_APART_US = 13_000
"""By this much the periods of the pipelines' triggers differ, so that these of one period do not all look for input at one moment."""


def run_project(directory: str, *, once: bool, drain: bool, only: list[str], most: int | None, restart: bool) -> None:
    """Run the pipelines of a project until stopped, or once in the order of the graph; exit with the worst code of all failures."""
    project = load_project(directory)
    if only:
        project = project.only(only)
    require_versions("spark")
    for member in project.members.values():
        show_warnings([with_place(warning, member.path) for warning in member.config.warnings()])
    from sessionlake.preflight.project import unready
    from sessionlake.project.together import Together

    with progress() as shown:
        shown.step(CHECKING)
        errors = unready(project, shown.count)
    for name, error in errors.items():
        tell_failure(name, error, project.members[name].path)
    # With --once those behind are skipped, otherwise they wait for input.
    if len(project.graph.with_readers(errors) if once else errors) == len(project.members):
        from sessionlake.observe.standing import failed

        for name, error in errors.items():
            failed(project.members[name].config, error)
        _end(project, _none_can_run(project, errors), once=once)
    with progress() if once else nullcontext() as shown:
        spark = open_project_session(project)
        if shown is not None:
            shown.step(f"running {len(project.members)} pipelines")
        with put_off() as asked:
            if once:
                drained = list(project.members) if drain else []
                ended = run_all_once(spark, project, asked, drained=drained, most=most, told=errors)
            else:
                with _all_metrics(project) as kept:
                    work = _Work(spark, project, kept=kept, told=errors)
                    together = Together(project.graph, work, asked, work.failed, work.waits)
                    ended = together.until_stopped(restart=restart)
        if asked.is_set():
            raise KeyboardInterrupt
    _end(project, ended, once=once)


def run_all_once(
    spark: "SparkSession",
    project: Project,
    asked: threading.Event,
    *,
    drained: Collection[str] = (),
    most: int | None = None,
    told: Mapping[str, Exception] | None = None,
) -> "Mapping[str, Ended[RunSummary]]":
    """Run all pipelines once, each after those that it reads, at most `most` at a time, by default as many as there are cores.

    The open results of the `drained` ones are closed at the end. If `asked` is set, those that run end with the batch.
    Failures in `told` are printed already.
    """
    from sessionlake.project.together import Together

    work = _Work(spark, project, drained=drained, told=told)
    return Together(project.graph, work, asked, work.failed, work.waits).once(most or os.cpu_count() or 1)


def open_project_session(
    project: Project, *, driver_memory: str = "4g", little_java: bool | None = None
) -> "SparkSession":
    """Start Spark for all pipelines of a project, which share its cores by their weights; by default for their streams."""
    from sessionlake.engine.sockets import fair_pools

    configs = project.configs
    first = next((config for config in configs.values() if config.lineage.listener), next(iter(configs.values())))
    weights = {name: config.pipeline.weight for name, config in configs.items()}
    little = all(map(is_little, configs.values())) if little_java is None else little_java
    return open_session(
        first, driver_memory=driver_memory, little_java=little, conf=fair_pools(weights), name="project"
    )


@contextmanager
def _all_metrics(project: Project) -> Iterator[Mapping[str, StreamMetrics]]:
    """Serve the metrics of each pipeline while the block runs, whatever becomes of the pipeline."""
    with ExitStack() as stack:
        configs = project.configs
        found = {name: stack.enter_context(closing(StreamMetrics(config))) for name, config in configs.items()}
        for name, config in configs.items():
            found[name].serve(config)
        yield found


class Sessions:
    """A Spark session for each pipeline of a process, also after a failure: Spark keeps what listens to the queries of each one for good."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._made: dict[str, SparkSession] = {}

    def of(self, name: str, config: Config) -> "SparkSession":
        """Return the session of a pipeline, for the thread that asks, which gets the pipeline's share of the cores."""
        from sessionlake.engine.sockets import work_in_pool, work_in_session

        if name not in self._made:
            self._made[name] = self._spark.newSession()
        spark = self._made[name]
        spark.conf.set("spark.sql.shuffle.partitions", str(config.pipeline.shards))
        work_in_pool(spark, name)
        work_in_session(spark)
        return spark


def tell_restart(pipeline: str, wait_s: float) -> None:
    """Say when a pipeline that has failed is started again."""
    click.echo(f"sessionlake: {pipeline}: is started again in {wait_s:.0f} s; the others go on", err=True)


def tell_wait(member: Member, error: "AwaitedError") -> None:
    """Say what a pipeline waits for."""
    (line,), _ = error_lines(error, member.path)
    click.echo(f"sessionlake: {member.name}: waits: {line}", err=True)


class _Work:
    """The work of a pipeline's thread, and the lines about it: once, or on and on with the metrics that are `kept`."""

    def __init__(
        self,
        spark: "SparkSession",
        project: Project,
        *,
        kept: Mapping[str, StreamMetrics] | None = None,
        drained: Collection[str] = (),
        told: Mapping[str, Exception] | None = None,
    ) -> None:
        self._members, self._kept, self._drained = project.members, kept, drained
        self._told = {name: str(error) for name, error in (told or {}).items()}
        self._width = max(map(len, project.members))
        self._sessions = Sessions(spark)

    def __call__(self, name: str) -> "RunSummary":
        """Run a pipeline to its end, under the config as it is now: it may have been mended after a failure."""
        from sessionlake.engine.placement import BEFORE
        from sessionlake.observe.standing import failure_kept
        from sessionlake.preflight.check import require_ready
        from sessionlake.preflight.project import require_upstream

        member = self._members[name]
        with failure_kept(member.config) as well:
            config = load_config(member.path)
            require_upstream(config)
            require_ready(config, member.path)
            spark = self._sessions.of(name, config)
            spark.conf.set(BEFORE, str(self._shards_before(name)))
            on_commit = both(partial(self._committed, config), well)
            if self._kept is not None:
                own = staggered(config, list(self._members).index(name))
                return stream_on(spark, own, on_commit, kept=self._kept[name])
            with observed(config, STREAM_RUN) as counted:
                summary = stream_once(spark, config, on_commit, drain=name in self._drained)
                counted({"batches": summary.batches, **summary.counts})
            return summary

    def _shards_before(self, name: str) -> int:
        """Return how many shards the pipelines before this one have: one after the other they are dealt out to executors."""
        return sum(one.config.pipeline.shards for other, one in self._members.items() if other < name)

    def failed(self, name: str, error: Exception, wait_s: float | None) -> None:
        """Tell of a failure in the lines that the pipeline's own `run` would print."""
        from sessionlake.observe.standing import failed

        member = self._members[name]
        if self._told.pop(name, None) != str(error):
            tell_failure(name, error, member.path)
        if self._kept is not None:
            self._kept[name].readings.fails()
        if wait_s is not None:
            failed(member.config, error, wait_s)
            tell_restart(name, wait_s)

    def waits(self, name: str, error: "AwaitedError") -> None:
        """Tell that a pipeline waits for the first batch of one that it reads."""
        tell_wait(self._members[name], error)

    def _committed(self, config: Config, batch: "BatchCommit") -> None:
        print_batch(batch, f"{config.pipeline.name:<{self._width}}  ")


def staggered(config: Config, place: int) -> Config:
    """Return a config whose trigger has a period of its own: Spark starts batches at multiples of the period since 1970."""
    period_us = parse_duration(config.pipeline.trigger)
    if not period_us:
        return config
    pipeline = config.pipeline.model_copy(update={"trigger": f"{period_us + place * _APART_US} us"})
    return config.model_copy(update={"pipeline": pipeline})


def _none_can_run(project: Project, errors: Mapping[str, Exception]) -> "Mapping[str, Ended[RunSummary]]":
    """Return how the pipelines of a project end if none can run: a pipeline without an error reads one that has an error, or is skipped."""
    from sessionlake.project.together import Ended, How

    ended: dict[str, Ended[RunSummary]] = {}
    for name in project.members:
        if name in errors:
            ended[name] = Ended(How.FAILED, error=errors[name])
        else:
            ended[name] = Ended(How.SKIPPED, because=tuple(up for up in project.graph.upstream(name) if up in ended))
    return ended


def _end(project: Project, ended: "Mapping[str, Ended[RunSummary]]", *, once: bool) -> None:
    """Print how each pipeline ended, and end with the worst exit code of their errors, if there are any."""
    _report(project, ended, once=once)
    if code := worst({error_lines(one.error, None)[1] for one in ended.values() if one.error is not None}):
        raise SystemExit(code)


def _report(project: Project, ended: "Mapping[str, Ended[RunSummary]]", *, once: bool) -> None:
    """Print how each pipeline ended, then which failed, and one line of JSON for the calling program."""
    width = max(map(len, ended), default=0)
    told: dict[str, Any] = {}
    for name, one in ended.items():
        told[name] = {"state": one.how.value}
        if one.result is not None:
            told[name] |= {"batches": one.result.batches, **one.result.counts}
            print_summary(one.result, f"{name:<{width}}  ")
        elif one.because:
            console.print(f"{name:<{width}}  skipped: it reads {', '.join(one.because)}", soft_wrap=True)
        else:
            why = ": a pipeline that it reads has no batches yet" if one.how.value == "skipped" else ""
            console.print(f"{name:<{width}}  {one.how.value}{why}", soft_wrap=True)
    if once:
        new = {name for name, one in ended.items() if one.result is not None and one.result.batches}
        print_unpublished(project.directory, {name: project.configs[name] for name in project.members if name in new})
    of_state = {how: [name for name, one in told.items() if one["state"] == how] for how in ("failed", "skipped")}
    if of_state["failed"]:
        skipped = f"; skipped: {', '.join(of_state['skipped'])}" if of_state["skipped"] else ""
        line = f"{len(of_state['failed'])} of {len(ended)} pipelines of {project.directory!r} failed: {', '.join(of_state['failed'])}"
        click.echo(f"sessionlake: {STREAM_RUN}: {line}{skipped}", err=True)
    click.echo(json.dumps({"job": STREAM_RUN, **of_state, "pipelines": told}))
