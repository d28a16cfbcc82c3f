"""The command that prints the completion of a shell."""

import click
from click.shell_completion import get_completion_class

from sessionlake.cli.shared import one_line_errors

SHELLS = ("bash", "zsh", "fish")
PROGRAM, VARIABLE = "sessionlake", "_SESSIONLAKE_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), metavar=f"[{'|'.join(SHELLS)}]")
@one_line_errors
def completion_command(shell: str) -> None:
    """Print the script by which a shell completes commands, options, configs and names of pipelines.

    For example `eval "$(sessionlake completion bash)"` in ~/.bashrc.
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 (click has all of SHELLS)
    click.echo(made(click.get_current_context().find_root().command, {}, PROGRAM, VARIABLE).source())
