"""The commands that run the stream."""

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from sessionlake.cli.error_lines import with_place
from sessionlake.cli.observed import observed, observed_stream
from sessionlake.cli.progress import progress
from sessionlake.cli.shared import console, format_time, one_line_errors, open_session, show_warnings
from sessionlake.config.load import Config, load_config
from sessionlake.extras import require_versions
from sessionlake.jobs.registry import SESSIONIZE
from sessionlake.stopping import leaves

if TYPE_CHECKING:
    from sessionlake.stream.run import RunSummary
    from sessionlake.warehouse.batch_commit import BatchCommit


@click.command("run")
@click.argument("config_path", metavar="CONFIG")
@click.option("--once", is_flag=True, help="Process all input that is available now, then exit.")
@click.option(
    "--drain", is_flag=True, help="With --once: then close all open results, as at the end of a finite input."
)
@click.option(
    "--trust-clock", is_flag=True, help="Declare this machine's clock right, although it is behind the last commit's."
)
@click.option(
    "--replan",
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
@one_line_errors
def run_command(
    config_path: str,
    once: bool,  # noqa: FBT001 (click passes flags by name)
    drain: bool,  # noqa: FBT001
    trust_clock: bool,  # noqa: FBT001
    replan: bool,  # noqa: FBT001
    allow_expiry: bool,  # noqa: FBT001
    drop_aggregates: bool,  # noqa: FBT001
) -> None:
    """Run the stream until stopped (ctrl-C), or once."""
    if drain and not once:
        raise click.UsageError("--drain goes with --once")
    config = load_config(config_path)
    require_versions(spark=True)
    show_warnings([with_place(warning, config_path) for warning in config.warnings()])
    options = {"trust_clock": trust_clock, "give_up_plan": replan, "allow_expiry": allow_expiry}
    options["drop_aggregates"] = drop_aggregates
    summary = (
        _run_once(config, config_path, drain=drain, **options) if once else _run_stream(config, config_path, **options)
    )
    print_summary(summary)
    print_metrics(summary)


def _run_once(config: Config, config_path: str, **options: Any) -> "RunSummary":
    from sessionlake.jobs.expire.tombstone_sender import TombstoneSender
    from sessionlake.operators.run import run
    from sessionlake.preflight.check import require_ready
    from sessionlake.preflight.needs import OF_STREAM

    with observed(config, SESSIONIZE) as counted, progress() as shown:
        require_ready(config, config_path, replace(OF_STREAM, drops=options["drop_aggregates"]))
        spark = open_session(config, little_java=_is_little(config))
        shown.step("sessionizing")
        sender = TombstoneSender(spark, config)

        def on_commit(batch: "BatchCommit") -> None:
            print_batch(batch)
            shown.step(f"sessionizing, {batch.batch_id + 1:,} batches are committed")
            sender.committed(batch)

        summary = run(spark, config, once=True, **options, on_commit=on_commit, meanwhile=sender.wake)
        sender.finish()
        counted({"batches": summary.batches, **summary.counts})
    return summary


def _run_stream(config: Config, config_path: str, **options: Any) -> "RunSummary":
    from sessionlake.jobs.expire.tombstone_sender import TombstoneSender
    from sessionlake.jobs.publish.lag import held_back
    from sessionlake.operators.run import run
    from sessionlake.preflight.check import require_ready
    from sessionlake.preflight.needs import OF_STREAM
    from sessionlake.warehouse.tables import Tables

    require_ready(config, config_path, replace(OF_STREAM, drops=options["drop_aggregates"]))
    spark = open_session(config, little_java=_is_little(config))
    sender = TombstoneSender(spark, config)
    with observed_stream(spark, config) as committed:

        def on_commit(batch: "BatchCommit") -> None:
            print_batch(batch)
            committed(batch)
            sender.committed(batch)

        gate = held_back(Tables.of(spark, config), config)
        return run(spark, config, **options, on_commit=on_commit, gate=gate, meanwhile=sender.wake)


def _is_little(config: Config) -> bool:
    """Say whether Java only plans and commits: Python opens files itself, while records and rows of a table come through Java."""
    return all(side.source.entry.opens_files for side in config.inputs.values())


@click.command("bootstrap")
@click.argument("config_path", metavar="CONFIG")
@one_line_errors
def bootstrap_command(config_path: str) -> None:
    """Process all existing input in one bulk pass, for first use on old data; then `run` goes on."""
    config = load_config(config_path)
    require_versions(spark=True)
    from sessionlake.operators.run import run
    from sessionlake.preflight.check import require_ready

    show_warnings([with_place(warning, config_path) for warning in config.warnings()])
    with observed(config, SESSIONIZE) as counted, progress() as shown:
        require_ready(config, config_path)
        spark = open_session(config)
        shown.step("sessionizing all input in one pass")
        summary = run(spark, config, bootstrap=True, on_commit=_bootstrapped)
        counted({"batches": summary.batches, **summary.counts})
    print_summary(summary)


def _bootstrapped(batch: "BatchCommit") -> None:
    leaves("all input is committed, `sessionlake run` goes on from here")
    print_batch(batch)


def print_batch(batch: "BatchCommit") -> None:
    """Print a line a batch."""
    counts = batch.counts
    took = (batch.committed_us - batch.started_us) / 1e6
    refused = "".join(
        f", {counts[n]:,} {n}"
        for n in ("late", "dead", "dropped", "emitted", "filtered", "duplicate", "stale")
        if counts.get(n)
    )
    deleted = f", {counts['deletes']:,} deleted" if counts.get("deletes") else ""
    console.print(
        f"batch {batch.batch_id:>4}  {counts.get('input', 0):>10,} events{refused}  "
        f"{counts.get('upserts', 0):>9,} changed{deleted}  watermark {format_time(batch.watermark_us)}  {took:.1f} s"
    )


def print_summary(summary: "RunSummary") -> None:
    """Print a run's counts and its warnings."""
    c = summary.counts
    console.print(
        f"{summary.batches} batches: {c['input']:,} events = {c['accepted']:,} accepted + {c['late']:,} late + {c['dead']:,} dead"
        f" + {c['dropped']:,} dropped + {c['emitted']:,} emitted + {c['filtered']:,} filtered + {c['duplicate']:,} duplicate; watermark {format_time(summary.watermark_us)}"
    )
    show_warnings(summary.warnings)


def print_metrics(summary: "RunSummary") -> None:
    """Print a run's counts as one line of JSON, the last line, for the calling program, as jobs do."""
    watermark = summary.watermark_us
    lag = None if watermark is None else round(time.time() - watermark / 1e6)
    metrics = {"watermark": None if watermark is None else format_time(watermark), "watermark_lag_seconds": lag}
    click.echo(json.dumps({"job": "sessionize", "batches": summary.batches, **summary.counts, **metrics}))
