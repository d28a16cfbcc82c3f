"""Run a pipeline: until stopped, or over all available input."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.operators.registry import kind_of
from sessionlake.stream.run import Gate, OnCommit, RunSummary, run_kind


def run(
    spark: SparkSession,
    config: Config,
    *,
    once: bool = False,
    drain: bool = False,
    bootstrap: bool = False,
    trust_clock: bool = False,
    give_up_plan: bool = False,
    allow_expiry: bool = False,
    drop_aggregates: bool = False,
    on_commit: OnCommit | None = None,
    gate: Gate = lambda _: None,
    meanwhile: Callable[[], None] = lambda: None,
    of_job: bool = False,
) -> RunSummary:
    """Run the operator of a config; see `stream.run.run_kind` for the options."""
    return run_kind(
        spark,
        config,
        kind_of(config),
        once=once,
        drain=drain,
        bootstrap=bootstrap,
        trust_clock=trust_clock,
        give_up_plan=give_up_plan,
        allow_expiry=allow_expiry,
        drop_aggregates=drop_aggregates,
        on_commit=on_commit,
        gate=gate,
        meanwhile=meanwhile,
        of_job=of_job,
    )
