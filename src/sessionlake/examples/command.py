"""The command `demo`."""

import click

from sessionlake.cli.shared import console, one_line_errors


@click.command("demo")
@click.option(
    "--directory", default="demo", show_default=True, help="Where the demo's pipeline is made; an old one is replaced."
)
@one_line_errors
def demo_command(directory: str) -> None:
    """Turn 62,726 real commit events into sessions, run all jobs on them, and show what came out."""
    from sessionlake.examples.demo import run_demo

    run_demo(directory, console)
