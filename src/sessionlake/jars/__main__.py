"""`python -m sessionlake.jars` fetches jars and prints their paths; it needs no other module of the package except errors."""

import sys
from pathlib import Path

import click

from sessionlake.errors import SessionlakeError
from sessionlake.jars.cache import copy_to, find_jars
from sessionlake.jars.lists import load_list


@click.command("jars")
@click.argument("names", nargs=-1, metavar="[LIST]...")
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    help="Copy the jars here, those of other lists than `spark` each to a subfolder. SESSIONLAKE_JARS may name this directory.",
)
def jars_command(names: tuple[str, ...], to: Path | None) -> None:
    """Fetch the jars that Spark needs, if they are missing, and print their folder.

    LIST is spark (the default), s3, adls, gcs or openlineage, or the path of a list of the same form.
    """
    try:
        for name in names or ("spark",):
            if to is None:
                click.echo(find_jars(name)[0].parent)
                continue
            jars = load_list(name)
            folder = to if jars.name == "spark" else to / jars.name
            copy_to(jars, folder)
            click.echo(folder)
    except SessionlakeError as error:
        click.echo(f"sessionlake: {' '.join(str(error).split())}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    jars_command(prog_name="python -m sessionlake.jars")
