"""The commands for the files next to the package, and for a shell's completion."""

import shutil
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from sessionlake.cli.shared import one_line_errors
from sessionlake.config.shipped import SHIPPED, shipped_directory
from sessionlake.errors import SessionlakeError


@click.command("files")
@click.argument("folder", type=click.Choice(list(SHIPPED)), metavar=f"[{'|'.join(SHIPPED)}]")
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path, file_okay=False),
    help="Copy them into this directory, which is created if it does not exist.",
)
@click.option("--force", is_flag=True, help="With --to: replace files of the same name that differ.")
@one_line_errors
def files_command(folder: str, target: Path | None, force: bool) -> None:  # noqa: FBT001 (click passes it by name)
    """Print the path of the DAGs, of spark-submit's entry or of the suites of checks, or copy them.

    For example `sessionlake files dags --to ~/airflow/dags`. Other files of the directory stay as they are.
    """
    source = shipped_directory(folder)
    if target is None:
        click.echo(source)
        return
    names = sorted(file.relative_to(source) for kind in ("*.py", "*.json") for file in source.rglob(kind))
    if not force:
        _require_no_other(source, target, names)
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)
    click.echo(f"{len(names)} files in {target}")


def _require_no_other(source: Path, target: Path, names: list[Path]) -> None:
    """Raise SessionlakeError if a file of the same name is there and differs: someone may have changed it."""
    for name in names:
        there = target / name
        if there.exists() and there.read_bytes() != (source / name).read_bytes():
            raise SessionlakeError(f"--to: {str(there)!r} is there and differs; pass --force to replace it")


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
