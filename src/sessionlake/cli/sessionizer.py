"""The commands that run the sessionizer."""

import json
import time
from typing import TYPE_CHECKING, Any

import click

from sessionlake.cli.observed import observed, observed_stream
from sessionlake.cli.shared import console, format_time, one_line_errors, open_session, show_warnings
from sessionlake.config.load import Config, load_config
from sessionlake.jobs.registry import SESSIONIZE

if TYPE_CHECKING:
    from sessionlake.stream.run import RunSummary
    from sessionlake.warehouse.batch_commit import BatchCommit


@click.command("run")
@click.argument("config_path", metavar="CONFIG")
@click.option("--once", is_flag=True, help="Process all input that is available now, then exit.")
@click.option("--drain", is_flag=True, help="With --once: then close what is open, as at the end of a finite input.")
@click.option(
    "--trust-clock", is_flag=True, help="This machine's clock is right though it is behind the last commit's."
)
@click.option(
    "--replan",
    is_flag=True,
    help="First give up the batch that was planned but not committed: it is made anew, under the limits of the config.",
)
@one_line_errors
def run_command(config_path: str, once: bool, drain: bool, trust_clock: bool, replan: bool) -> None:  # noqa: FBT001 (click passes flags by name)
    """Run the sessionizer until stopped (ctrl-C), or once."""
    if drain and not once:
        raise click.UsageError("--drain goes with --once")
    config = load_config(config_path)
    show_warnings(config.warnings())
    try:
        options = {"trust_clock": trust_clock, "give_up_plan": replan}
        summary = _run_once(config, drain=drain, **options) if once else _run_stream(config, **options)
    except KeyboardInterrupt:
        console.print("stopped; nothing is lost, `sessionlake run` goes on from here")
        return
    print_summary(summary)
    print_metrics(summary)


def _run_once(config: Config, **options: Any) -> "RunSummary":
    from sessionlake.jobs.expire.told import Told
    from sessionlake.operators.run import run

    with observed(config, SESSIONIZE) as counted:
        spark = open_session(config, little_java=_is_little(config))
        told = Told(spark, config)

        def on_commit(batch: "BatchCommit") -> None:
            print_batch(batch)
            told.committed(batch)

        summary = run(spark, config, once=True, **options, on_commit=on_commit, meanwhile=told.wake)
        told.finish()
        counted({"batches": summary.batches, **summary.counts})
    return summary


def _run_stream(config: Config, **options: Any) -> "RunSummary":
    from sessionlake.jobs.expire.told import Told
    from sessionlake.jobs.publish.lag import held_back
    from sessionlake.operators.run import run
    from sessionlake.warehouse.tables import Tables

    spark = open_session(config, little_java=_is_little(config))
    told = Told(spark, config)
    with observed_stream(spark, config) as committed:

        def on_commit(batch: "BatchCommit") -> None:
            print_batch(batch)
            committed(batch)
            told.committed(batch)

        gate = held_back(Tables.of(spark, config), config)
        return run(spark, config, **options, on_commit=on_commit, gate=gate, meanwhile=told.wake)


def _is_little(config: Config) -> bool:
    """Say whether Java only plans and commits: Python opens files itself, while records and rows of a table come through Java."""
    return all(side.source.kind == "files" for side in config.inputs.values())


@click.command("bootstrap")
@click.argument("config_path", metavar="CONFIG")
@one_line_errors
def bootstrap_command(config_path: str) -> None:
    """Sessionize all existing input in one bulk pass, for first use on old data; then `run` goes on."""
    config = load_config(config_path)
    from sessionlake.operators.run import run

    show_warnings(config.warnings())
    with observed(config, SESSIONIZE) as counted:
        summary = run(open_session(config), config, bootstrap=True, on_commit=print_batch)
        counted({"batches": summary.batches, **summary.counts})
    print_summary(summary)


def print_batch(batch: "BatchCommit") -> None:
    """Print a line a batch."""
    counts = batch.counts
    took = (batch.committed_us - batch.started_us) / 1e6
    refused = "".join(f", {counts[n]:,} {n}" for n in ("late", "dead", "dropped", "emitted", "stale") if counts.get(n))
    deleted = f", {counts['deletes']:,} deleted" if counts.get("deletes") else ""
    console.print(
        f"batch {batch.batch_id:>4}  {counts.get('input', 0):>10,} events{refused}  "
        f"{counts.get('upserts', 0):>9,} changed{deleted}  watermark {format_time(batch.watermark_us)}  {took:.1f} s"
    )


def print_summary(summary: "RunSummary") -> None:
    """Print what a run did and its warnings."""
    c = summary.counts
    console.print(
        f"{summary.batches} batches: {c['input']:,} events = {c['accepted']:,} accepted + {c['late']:,} late + {c['dead']:,} dead"
        f" + {c['dropped']:,} dropped + {c['emitted']:,} emitted; watermark {format_time(summary.watermark_us)}"
    )
    show_warnings(summary.warnings)


def print_metrics(summary: "RunSummary") -> None:
    """Print what a run did as one line of JSON, the last, for what called it, as the scheduled jobs do."""
    watermark = summary.watermark_us
    lag = None if watermark is None else round(time.time() - watermark / 1e6)
    metrics = {"watermark": None if watermark is None else format_time(watermark), "watermark_lag_seconds": lag}
    click.echo(json.dumps({"job": "sessionize", "batches": summary.batches, **summary.counts, **metrics}))
