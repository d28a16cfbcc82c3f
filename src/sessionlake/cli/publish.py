"""The command `publish`."""

from sessionlake.cli.jobs import command_of
from sessionlake.cli.observed import observed_publisher
from sessionlake.cli.shared import console, open_session
from sessionlake.config.load import load_config


@command_of("publish")
def publish_command(config_path: str, once: bool) -> None:  # noqa: FBT001 (click passes flags by name)
    """Publish, a line a batch."""
    config = load_config(config_path)
    from sessionlake.jobs.publish import publish
    from sessionlake.jobs.publish.job import sink_of

    sink_of(config)  # before Spark, which takes seconds to start
    with observed_publisher(config) as batch_done:

        def show(number: int, everything: bool) -> None:  # noqa: FBT001
            console.print(f"batch {number:>4}  {f'all {config.operator}s' if everything else 'changes'} published")
            batch_done()

        published = publish(open_session(config), config, once=once, on_batch=show)
    console.print(f"{published.batches} batches published")
