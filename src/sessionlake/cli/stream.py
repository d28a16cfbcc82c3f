"""The commands that run the stream."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from sessionlake.cli.failures import with_place
from sessionlake.cli.observed import StreamMetrics, observed, observed_stream
from sessionlake.cli.operands import CONFIG, EITHER, complete_names, config_argument
from sessionlake.cli.progress import CHECKING, progress
from sessionlake.cli.shared import console, format_time, one_line_errors, open_session, show_warnings
from sessionlake.config.load import Config, load_config
from sessionlake.config.project import is_project
from sessionlake.extras import require_versions
from sessionlake.jobs.registry import STREAM_RUN
from sessionlake.stopping import leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from sessionlake.stream.run import RunSummary
    from sessionlake.warehouse.batch_commit import BatchCommit


_OF_ONE = {
    "trust_clock": "--trust-clock",
    "give_up_plan": "--replan",
    "allow_expiry": "--allow-expiry",
    "drop_aggregates": "--drop-aggregates",
}
"""The options of `run` that are meant for one pipeline, by the arguments that they are."""


@click.command("run")
@config_argument(EITHER)
@click.option("--once", is_flag=True, help="Process all input that is available now, then exit.")
@click.option(
    "--drain", is_flag=True, help="With --once: then close all open results, as at the end of a finite input."
)
@click.option(
    "--trust-clock", is_flag=True, help="Declare this machine's clock right, although it is behind the last commit's."
)
@click.option(
    "--replan",
    "give_up_plan",
    is_flag=True,
    help="First discard the batch that was planned but not committed: it is planned again, with the limits of the config.",
)
@click.option(
    "--allow-expiry",
    is_flag=True,
    help="In this run [ttl] may remove any share of the rows, also after a jump of the clock.",
)
@click.option(
    "--drop-aggregates",
    is_flag=True,
    help="Drop the aggregates that are gone from the config: their columns are null from now on.",
)
@click.option(
    "--only",
    metavar="NAMES",
    shell_complete=complete_names,
    help="Of a project: these pipelines, with commas between their names.",
)
@click.option(
    "--parallel",
    type=click.IntRange(min=1),
    help="Of a project, with --once: the most pipelines that run at a time.  [default: one for each core]",
)
@click.option(
    "--no-restart", is_flag=True, help="Of a project: do not start a pipeline again that has failed; the others go on."
)
@one_line_errors
def run_command(
    config_path: str,
    once: bool,  # noqa: FBT001 (click passes flags by name)
    drain: bool,  # noqa: FBT001
    only: str | None,
    parallel: int | None,
    no_restart: bool,  # noqa: FBT001
    **options: Any,
) -> None:
    """Run the stream, or all streams of a project, until stopped (ctrl-C), or once.

    A project is a directory with a project.toml. Its pipelines run in one process, each of them fails alone.
    """
    if drain and not once:
        raise click.UsageError("--drain goes with --once")
    if is_project(config_path):
        given = next((option for name, option in _OF_ONE.items() if options[name]), None)
        if given is not None:
            raise click.UsageError(f"{given} goes with one pipeline; name its file")
        from sessionlake.cli.together import run_project

        names = [name.strip() for name in only.split(",")] if only else []
        run_project(config_path, once=once, drain=drain, only=names, most=parallel, restart=not no_restart)
        return
    if only or parallel or no_restart:
        raise click.UsageError("--only, --parallel and --no-restart go with a project; name its directory")
    config = load_config(config_path)
    require_versions("spark")
    show_warnings([with_place(warning, config_path) for warning in config.warnings()])
    summary = run_stream(config, print_batch, config_path, once=once, drain=drain, **options)
    print_summary(summary)
    if once:
        print_unpublished(config_path, {config.pipeline.name: config} if summary.batches else {})
    print_metrics(summary)


def run_stream(
    config: Config,
    on_commit: "Callable[[BatchCommit], None]",
    config_path: str | None = None,
    *,
    once: bool,
    drain: bool = False,
    spark: "SparkSession | None" = None,
    **options: Any,
) -> "RunSummary":
    """Run a pipeline until it is stopped, or once, after all checks that are possible before Spark starts.

    `config_path` is its file, if it has one. Without `spark` the active session is used, or one is started.
    """
    from sessionlake.observe.standing import failure_kept
    from sessionlake.preflight.check import require_ready
    from sessionlake.preflight.needs import OF_STREAM

    if spark is not None:
        from sessionlake.engine.spark import require_delta

        require_delta(spark)
    needs = replace(OF_STREAM, drops=options.get("drop_aggregates", False))
    if not once:
        with failure_kept(config) as well:
            with progress() as shown:
                shown.step(CHECKING)
                require_ready(config, config_path, needs)
                spark = spark or open_session(config, little_java=is_little(config))
            return stream_on(spark, config, both(on_commit, well), **options)
    with failure_kept(config), observed(config, STREAM_RUN) as counted, progress() as shown:
        shown.step(CHECKING)
        require_ready(config, config_path, needs)
        spark = spark or open_session(config, little_java=is_little(config))
        shown.step("processing")

        def committed(batch: "BatchCommit") -> None:
            on_commit(batch)
            shown.step(f"processing, {batch.batch_id + 1:,} batches are committed")

        summary = stream_once(spark, config, committed, drain=drain, **options)
        counted({"batches": summary.batches, **summary.counts})
        return summary


def stream_once(
    spark: "SparkSession", config: Config, on_commit: "Callable[[BatchCommit], None]", **options: Any
) -> "RunSummary":
    """Run a pipeline over the input that is available, and send the tombstones that it owes."""
    from sessionlake.jobs.expire.tombstone_sender import TombstoneSender
    from sessionlake.jobs.followers.gate import tell_late
    from sessionlake.stream.run import run
    from sessionlake.warehouse.tables import Tables

    sender = TombstoneSender(spark, config)

    def committed(batch: "BatchCommit") -> None:
        on_commit(batch)
        sender.committed(batch)

    tell_late(Tables.of(spark, config), config)
    summary = run(spark, config, once=True, **options, on_commit=committed, meanwhile=sender.wake)
    sender.finish()
    return summary


def stream_on(
    spark: "SparkSession",
    config: Config,
    on_commit: "Callable[[BatchCommit], None]",
    *,
    kept: StreamMetrics | None = None,
    **options: Any,
) -> "RunSummary":
    """Run a pipeline until it is stopped, with the metrics and lineage that its config asks for; see `observed_stream`."""
    from sessionlake.jobs.expire.tombstone_sender import TombstoneSender
    from sessionlake.jobs.followers.gate import held_back
    from sessionlake.stream.run import run
    from sessionlake.warehouse.tables import Tables

    sender = TombstoneSender(spark, config)
    with observed_stream(spark, config, kept) as seen:

        def committed(batch: "BatchCommit") -> None:
            on_commit(batch)
            seen(batch)
            sender.committed(batch)

        gate = held_back(Tables.of(spark, config), config)
        return run(spark, config, **options, on_commit=committed, gate=gate, meanwhile=sender.wake)


def both(on_commit: "Callable[[BatchCommit], None]", well: "Callable[[], None]") -> "Callable[[BatchCommit], None]":
    """Return a function of a batch that calls both: after a batch a stream is well."""

    def committed(batch: "BatchCommit") -> None:
        well()
        on_commit(batch)

    return committed


def is_little(config: Config) -> bool:
    """Say whether Java only plans and commits: Python opens files itself, while records and rows of a table come through Java."""
    return all(side.source.entry.opens_files for side in config.inputs.values())


@click.command("bootstrap")
@config_argument(CONFIG)
@one_line_errors
def bootstrap_command(config_path: str) -> None:
    """Process all existing input in one bulk pass, for first use on old data; then `run` goes on."""
    config = load_config(config_path)
    require_versions("spark")
    from sessionlake.observe.standing import failure_kept
    from sessionlake.preflight.check import require_ready
    from sessionlake.stream.run import run

    show_warnings([with_place(warning, config_path) for warning in config.warnings()])
    with failure_kept(config), observed(config, STREAM_RUN) as counted, progress() as shown:
        shown.step(CHECKING)
        require_ready(config, config_path)
        spark = open_session(config)
        shown.step("processing all input in one pass")
        summary = run(spark, config, bootstrap=True, on_commit=_bootstrapped)
        counted({"batches": summary.batches, **summary.counts})
    print_summary(summary)


def _bootstrapped(batch: "BatchCommit") -> None:
    leaves("all input is committed, `sessionlake run` goes on from here")
    print_batch(batch)


def print_batch(batch: "BatchCommit", pipeline: str = "") -> None:
    """Print a line of a batch, after the name of its pipeline if there are several."""
    counts = batch.counts
    took = (batch.committed_us - batch.started_us) / 1e6
    refused = "".join(
        f", {counts[n]:,} {n}"
        for n in ("late", "dead", "dropped", "emitted", "filtered", "duplicate", "stale")
        if counts.get(n)
    )
    deleted = f", {counts['deletes']:,} deleted" if counts.get("deletes") else ""
    console.print(
        f"{pipeline}batch {batch.batch_id:>4}  {counts.get('input', 0):>10,} events{refused}  "
        f"{counts.get('upserts', 0):>9,} changed{deleted}  watermark {format_time(batch.watermark_us)}  {took:.1f} s"
    )


def print_summary(summary: "RunSummary", pipeline: str = "") -> None:
    """Print a run's counts and its warnings, after the name of its pipeline if there are several."""
    c = summary.counts
    console.print(
        f"{pipeline}{summary.batches} batches: {c['input']:,} events = {c['accepted']:,} accepted + {c['late']:,} late + {c['dead']:,} dead"
        f" + {c['dropped']:,} dropped + {c['emitted']:,} emitted + {c['filtered']:,} filtered + {c['duplicate']:,} duplicate; watermark {format_time(summary.watermark_us)}",
        soft_wrap=True,
    )
    show_warnings([f"{pipeline.strip()}: {warning}" if pipeline else warning for warning in summary.warnings])


def print_unpublished(path: str, ran: Mapping[str, Config]) -> None:
    """Say which sinks of the pipelines that have new batches lack them, and the command that brings them there."""
    sinks = {name: [f"sink.{sink}" for sink in config.sink.targets] for name, config in ran.items()}
    told = [f"{', '.join(found)} of {name}" for name, found in sinks.items() if found]
    if told:
        console.print(f"not yet in {'; '.join(told)}: run `sessionlake publish {path} --once`", soft_wrap=True)


def print_metrics(summary: "RunSummary", command: str = STREAM_RUN) -> None:
    """Print a run's counts as one line of JSON, the last line, for the calling program, as jobs do."""
    watermark = summary.watermark_us
    lag = None if watermark is None else round(time.time() - watermark / 1e6)
    metrics = {"watermark": None if watermark is None else format_time(watermark), "watermark_lag_seconds": lag}
    click.echo(json.dumps({"job": command, "batches": summary.batches, **summary.counts, **metrics}))
