"""The command `publish`."""

from typing import TYPE_CHECKING

from sessionlake.cli.jobs import command_of
from sessionlake.cli.observed import observed_publisher
from sessionlake.cli.shared import console, has_little_data, open_session
from sessionlake.config.load import load_config
from sessionlake.config.source import DATABASE, TABLE, TOPIC

if TYPE_CHECKING:
    from sessionlake.jobs.publish import Step


@command_of("publish")
def publish_command(config_path: str, once: bool, only: str | None, resync: bool) -> None:  # noqa: FBT001 (click passes flags by name)
    """Publish, a line a batch."""
    config = load_config(config_path)
    from sessionlake.jobs.publish import publish, sinks_of
    from sessionlake.preflight.sinks import require_table

    sinks = sinks_of(config, only, resync=resync)  # before Spark, which takes seconds to start
    if TABLE in sinks:
        require_table(config, resync=resync)
    with observed_publisher(config) as batch_done:

        def show(number: int, everything: bool) -> None:  # noqa: FBT001
            console.print(f"batch {number:>4}  {f'all {config.operator}s' if everything else 'changes'} published")
            batch_done()

        def show_step(name: str, step: "Step") -> None:
            rows = "all rows" if step.rows is None else f"{step.rows:,} rows and {step.deleted:,} deletes"
            console.print(
                f"{name} at batch {step.batch_id}  {rows} {'written' if name in (TABLE, DATABASE) else 'sent'}"
            )
            batch_done()

        little_java = once and has_little_data(config)
        published = publish(
            open_session(config, little_java=little_java),
            config,
            once=once,
            only=only,
            resync=resync,
            on_batch=show,
            on_step=show_step,
        )
    in_steps = config.sink.kafka is not None and config.sink.kafka.transactions
    if TOPIC in sinks and not in_steps:
        console.print(f"{published.batches} batches published")
    if published.steps or in_steps or {*sinks} - {TOPIC}:
        console.print(f"{published.steps} steps")
