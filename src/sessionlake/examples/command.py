"""The command `demo`."""

import click

from sessionlake.cli.serve import serve
from sessionlake.cli.shared import console, one_line_errors


@click.command("demo")
@click.argument("what", type=click.Choice(["all", "table", "serve"]), default="all", metavar="[all|table|serve]")
@click.option(
    "--directory", default="demo", show_default=True, help="Directory of the demo's pipeline; an old one is replaced."
)
@one_line_errors
def demo_command(what: str, directory: str) -> None:
    """Turn 62,726 real commit events into sessions, run all jobs on them, and show the results.

    With `table`: the latest change of each folder, as a table whose rows expire after a year. With `serve`: all of
    this, then its sessions over HTTP and a page of the stream, until ctrl-C.
    """
    from sessionlake.examples import demo

    if what == "serve":
        serve(demo.served_config(directory))
    elif what == "table":
        demo.run_table_alone(directory, console)
    else:
        demo.run_demo(directory, console)
