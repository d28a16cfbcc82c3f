"""The argument that names a pipeline or a project, and the completion of it and of pipelines' names by a shell."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from sessionlake.config.file import PROJECT_FILE, ConfigFile, pipeline_files
from sessionlake.errors import SessionlakeError

CONFIG, PROJECT, EITHER = "CONFIG", "PROJECT", "CONFIG|PROJECT"
_Command = TypeVar("_Command", bound=Callable[..., Any])


def config_argument(metavar: str, name: str = "config_path") -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command the argument of a pipeline's file, of a project's directory, or of either."""
    return click.argument(name, metavar=metavar, shell_complete=complete_place)


def complete_place(context: click.Context, argument: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the pipelines' files and the projects in the directory that is begun; its directories if there are none."""
    del context
    asked = argument.metavar or CONFIG
    found = [place for place in _places(begun) if PROJECT in asked or place.endswith(".toml")]
    if asked == PROJECT:
        found = [place for place in found if not place.endswith(".toml")]
    return [CompletionItem(place) for place in found] or [CompletionItem(begun, type="dir")]


def complete_names(context: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the names of the project's pipelines that go on with the last of several names with commas between them."""
    del option
    before, comma, last = begun.rpartition(",")
    # click leaves arguments unread if the line ends in an option that lacks its value.
    project = context.params.get("config_path") or next(iter(context.args), None)
    names = [name for name in _names(project) if name not in before.split(",")]
    return [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(last)]


def _places(begun: str) -> Iterator[str]:
    head, _ = os.path.split(begun)
    with suppress(OSError):
        for entry in sorted(Path(head or ".").iterdir()):
            place = os.path.join(head, entry.name)  # noqa: PTH118 (as it was begun, "./" and all)
            is_pipeline = entry.suffix == ".toml" and entry.name != PROJECT_FILE
            if place.startswith(begun) and (is_pipeline or (entry / PROJECT_FILE).is_file()):
                yield place


def _names(directory: str | None) -> list[str]:
    """Return the names of a project's pipelines; those that can't be read are left out."""
    found = []
    with suppress(SessionlakeError):
        for file in pipeline_files(directory) if directory else ():
            with suppress(SessionlakeError):
                name = ConfigFile.read(file).merged().get("pipeline", {}).get("name")
                found += [name] if isinstance(name, str) else []
    return found
