"""All commands by name. A command's module is imported only when the command is called, because the help must appear at once."""

from functools import partial
from importlib import import_module
from typing import Any

import click

from sessionlake.cli.output import readers_may_end
from sessionlake.cli.stop import interrupted, stoppable
from sessionlake.config.operators import OPERATORS
from sessionlake.jobs.registry import JOBS

LOOKUPS = {entry.rows.command: entry.rows for entry in OPERATORS.values()}
"""The words for the rows that commands look up, by command; operators with the same command have the same words."""
_PIPELINE = {
    "init": ("init:init_command", "Look at a file, directory, Delta table or kafka://servers/topic, and write a commented config for it."),
    "try": ("trial:try_command", "Show the sessions, windows or query results of your own events at once, and how to go on. Writes nothing."),
    "check": ("check:check_command", "Print every problem of a config, or of all configs of a project; a summary if there is none."),
    "graph": ("graph:graph_command", "Show which pipelines of a project read which others."),
    "show": ("graph:show_command", "Print a config with the defaults of its project, and where each value comes from."),
    "plan": ("plan:plan_command", "Compare a config with the tables that are there, and say of each change if `run` takes it."),
    "run": ("stream:run_command", "Run the stream, or all streams of a project, until stopped (ctrl-C), or once."),
    "bootstrap": ("stream:bootstrap_command", "Process all existing input in one bulk pass, for first use on old data."),
    "status": ("status:status_command", "Show watermark, lag, counts that reconcile, store size and the last batches."),
    "sql": ("tables:sql_command", "Run SQL over the pipeline's tables and its live view, for example sessions_live."),
    **{command: ("", names.summary) for command, names in LOOKUPS.items()},
    "views": ("views:views_command", "Print the SQL that makes sessions_live and other views in another engine, or dbt's sources."),
    "register": ("views:register_command", "Make tables and views of a pipeline, or of a project, in Spark's catalog, and keep them as the pipelines are."),
    "serve": ("serve:serve_command", "Answer queries over HTTP from the stores of this host, and show a page of the stream."),
    "metrics": ("metrics:metrics_command", "Serve Prometheus metrics read from the tables, also while no stream runs."),
}  # fmt: skip
_MACHINE = {
    "jars": ("sessionlake.jars.__main__:jars_command", "Fetch the jars that Spark needs, if they are missing, and print their folder."),
    "fast-start": ("fast_start:fast_start_command", "Archive the classes that Spark uses, once for this installation: commands then start with a third less work."),
    "completion": ("installation:completion_command", "Print the script by which a shell completes commands, options, configs and names of pipelines."),
    "files": ("installation:files_command", "Print the path of the DAGs, of spark-submit's entry or of the suites of checks, or copy them."),
    "demo": ("sessionlake.examples.command:demo_command", "Turn 62,726 real commit events into sessions, run all jobs on them, and show the results."),
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
"""For each command its function and its line in the help. The function is module:attribute, under sessionlake.cli if no package is named.

The function is empty for commands that are derived from a job's entry, or from an operator's entry for commands that
look up rows.
"""
GROUPS = {
    "Write a pipeline": ("try", "init", "check", "plan", "graph", "show", "demo"),
    "Run it": ("run", "bootstrap", "status", "metrics", "compact", "quality"),
    "Read its results": ("sql", *LOOKUPS, "serve"),
    "Repair, change and remove": (
        *("reprocess-late", "redeem", "backfill", "rebuild", "expire", "forget", "backup", "restore"),
    ),
    "Ship it": ("publish", "register", "views", "files", "jars", "fast-start", "completion"),
}
"""The help's sections, with their commands in its order."""


class LazyGroup(click.Group):
    """A group of the commands above."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command, which ctrl-C and SIGTERM end in one line from here on, and whose reader may end first."""
        with readers_may_end():
            return stoppable(partial(super().main, *args, **kwargs))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; click itself would print `Aborted!`."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(interrupted()) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names in the order of the help."""
        del ctx
        return [name for names in GROUPS.values() for name in names]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; a usage error names the nearest one if there is none of the name."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from sessionlake.errors import did_you_mean

            near = did_you_mean(name, list(COMMANDS)) or "; `sessionlake --help` lists all commands"
            raise click.UsageError(f"No such command {name!r}{near}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, its module imported now; None if there is none of the name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in LOOKUPS:
            from sessionlake.cli.lookups import lookup_command

            return lookup_command(LOOKUPS[cmd_name])
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
        widest = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{widest}}", COMMANDS[name][1]) for name in names])
