"""The command `publish`."""

import click

from sessionlake.cli.observed import observed_publisher
from sessionlake.cli.shared import console, one_line_errors, open_session
from sessionlake.config.load import load_config


@click.command("publish")
@click.argument("config_path", metavar="CONFIG")
@click.option("--once", is_flag=True, help="Publish what there is now, then exit.")
@one_line_errors
def publish_command(config_path: str, once: bool) -> None:  # noqa: FBT001 (click passes flags by name)
    """Publish sessions to the compacted Kafka topic of [sink.kafka], until stopped (ctrl-C), or once."""
    config = load_config(config_path)
    from sessionlake.jobs.publish import publish

    try:
        with observed_publisher(config) as batch_done:

            def show(number: int, everything: bool) -> None:  # noqa: FBT001
                console.print(f"batch {number:>4}  {'all sessions' if everything else 'changes'} published")
                batch_done()

            published = publish(open_session(config), config, once=once, on_batch=show)
    except KeyboardInterrupt:
        console.print("stopped; `sessionlake publish` goes on from here")
        return
    console.print(f"{published.batches} batches published")
