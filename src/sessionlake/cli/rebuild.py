"""The command `rebuild`."""

from typing import TYPE_CHECKING

from sessionlake.cli.jobs import command_of
from sessionlake.cli.progress import CHECKING, progress
from sessionlake.cli.shared import console, open_session
from sessionlake.cli.stream import print_batch, print_metrics, print_summary
from sessionlake.config.load import load_config
from sessionlake.extras import require_versions
from sessionlake.stopping import leaves

if TYPE_CHECKING:
    from sessionlake.jobs.rebuild import Switch


@command_of("rebuild")
def rebuild_command(
    config_path: str,
    warehouse: str,
    switch: bool,  # noqa: FBT001
    **origin: bool,
) -> None:
    """Rebuild, and say which line of the config changes; with `switch` change it."""
    load_config(config_path)  # an error in it is reported at once, before the modules of Spark are loaded
    require_versions("spark")
    from sessionlake.jobs.rebuild import apply_switch, plan_switch, readers_need, rebuild, switched
    from sessionlake.preflight.check import require_ready
    from sessionlake.preflight.needs import OF_REBUILD, OF_REBUILD_FROM_ARCHIVE

    config = switched(config_path, plan_switch(config_path, warehouse))
    archived = origin["from_archive"]
    with progress() as shown:
        shown.step(CHECKING)
        require_ready(config, config_path, OF_REBUILD_FROM_ARCHIVE if archived else OF_REBUILD)
        spark = open_session(config)
        shown.step(f"computing all events {'of the archive ' if archived else ''}in one pass")
        summary, edit = rebuild(spark, config_path, warehouse, **origin, on_commit=print_batch)
    print_summary(summary)
    needs = readers_need(config_path, edit)
    if switch:
        apply_switch(config_path, edit)
        leaves(f"all is done: {config_path} names {warehouse} now")
    _print_edit(config_path, edit, done=switch)
    console.print("stop the stream on the old warehouse first, then start `sessionlake run` again")
    for line in needs:
        console.print(f"after that: {line}", soft_wrap=True)
    print_metrics(summary, "rebuild")


def _print_edit(config_path: str, edit: "Switch", *, done: bool) -> None:
    if edit.before is None:
        console.print(f"{'added' if done else 'to add'} to {config_path} as line {edit.line}:")
    else:
        console.print(f"line {edit.line} of {config_path} {'is now' if done else 'has to become'}:")
        console.print(f"  - {edit.before}")
    for line in edit.after.split("\n"):
        console.print(f"  + {line}")
