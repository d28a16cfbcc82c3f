"""All commands by name. A command's module is imported when the command is called, so that the help is there at once."""

from importlib import import_module
from typing import Any

import click

from sessionlake.cli.stop import interrupted, stoppable
from sessionlake.jobs.registry import JOBS

_PIPELINE = {
    "init": ("init:init_command", "Look at a file, directory, Delta table or kafka://servers/topic, and write a commented config for it."),
    "check": ("check:check_command", "Tell everything that is wrong with a config, its source and its tables, or else what it will do."),
    "run": ("sessionizer:run_command", "Run the sessionizer until stopped (ctrl-C), or once."),
    "bootstrap": ("sessionizer:bootstrap_command", "Sessionize all existing input in one bulk pass, for first use on old data."),
    "status": ("status:status_command", "Show watermark, lag, counts that reconcile, store size and the last batches."),
    "sql": ("tables:sql_command", "Run SQL over the tables and sessions_live or windows_live, each registered by name."),
    "sessions": ("sessions:sessions_command", "Show a key's sessions as of the last committed batch, oldest first."),
    "windows": ("sessions:windows_command", "Show a key's windows as of the last committed batch, oldest first."),
    "joins": ("sessions:joins_command", "Show a key's pairs as of the last committed batch, oldest first."),
    "table": ("sessions:table_command", "Show a key's row as of the last committed batch."),
    "views": ("views:views_command", "Print the SQL that makes sessions_live or windows_live a view in another engine."),
    "serve": ("serve:serve_command", "Answer queries over HTTP from the stores of this host, and show a page of the stream."),
    "metrics": ("metrics:metrics_command", "Serve Prometheus metrics read from the tables, also while no stream runs."),
}  # fmt: skip
_MACHINE = {
    "jars": ("jars:jars_command", "Fetch the jars that Spark needs, where they are not there yet, and print their folder."),
    "fast-start": ("fast_start:fast_start_command", "Archive the classes that Spark uses, once for this installation, so that commands start with a third less work."),
    "files": ("files:files_command", "Print where the DAGs, spark-submit's entry or the suites of checks are, or copy them."),
    "demo": ("sessionlake.examples.command:demo_command", "Turn 62,726 real commit events into sessions, run all jobs on them, and show what came out."),
}  # fmt: skip
_OF_THEIR_OWN = {
    "forget": "forget:forget_command",
    "rebuild": "rebuild:rebuild_command",
    "backup": "backup:backup_command",
    "restore": "backup:restore_command",
    "publish": "publish:publish_command",
}
"""Jobs whose commands do more than call the job's function."""
COMMANDS = {
    **_PIPELINE,
    **{job.command: (_OF_THEIR_OWN.get(job.name, ""), job.summary) for job in JOBS},
    **_MACHINE,
}
"""Of each command the place, as module:attribute under sessionlake.cli where no package is named, and its line in the help, in the help's order.

That of a job has no place where it is made of the job's entry alone.
"""


class LazyGroup(click.Group):
    """A group of the commands above."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command, which ctrl-C and SIGTERM end in one line from here on."""
        with stoppable():
            return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; click itself would print `Aborted!`."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(interrupted()) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, its module imported now; None where there is none of the name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        place, _ = COMMANDS[cmd_name]
        if not place:
            from sessionlake.cli.jobs import job_command

            return job_command(next(job for job in JOBS if job.command == cmd_name))
        module, _, attribute = place.partition(":")
        try:
            command: click.Command = getattr(
                import_module(module if "." in module else f"sessionlake.cli.{module}"), attribute
            )
        except ImportError as error:
            from sessionlake.cli.shared import end_with

            end_with(error)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' lines, none of them imported."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])
