"""All commands by name. A command's module is imported when the command is called, so that the help is there at once."""

from importlib import import_module

import click

COMMANDS = {
    "init": ("init:init_command", "Look at a file, directory, Delta table or kafka://servers/topic, and write a commented config for it."),
    "run": ("sessionizer:run_command", "Run the sessionizer until stopped (ctrl-C), or once."),
    "bootstrap": ("sessionizer:bootstrap_command", "Sessionize all existing input in one bulk pass, for first use on old data."),
    "status": ("status:status_command", "Show watermark, lag, counts that reconcile, store size and the last batches."),
    "sql": ("tables:sql_command", "Run SQL over the tables and sessions_live, each registered by name."),
    "sessions": ("sessions:sessions_command", "Show a key's sessions as of the last committed batch, oldest first."),
    "views": ("views:views_command", "Print the SQL that makes sessions_live a view in another engine."),
    "metrics": ("metrics:metrics_command", "Serve Prometheus metrics read from the tables, also while no stream runs."),
    "compact": ("compact:compact_command", "Fold the changelog into the snapshot, trim it, and put all tables' files in order."),
    "reprocess-late": ("reprocess_late:reprocess_late_command", "Restate the late events that are still within retention."),
    "redeem": ("redeem:redeem_command", "Read dead letters again and restate the events that now keep the contract."),
    "expire": ("expire:expire_command", "Remove expired sessions: by age, or by any SQL over the session and other tables."),
    "forget": ("forget:forget_command", "Remove all that is kept of some keys, and prove it."),
    "backfill": ("backfill:backfill_command", "Compute a date range's sessions from the events again and correct those that differ."),
    "rebuild": ("backfill:rebuild_command", "Sessionize all events into a new warehouse, after a change of gap, key or aggregates."),
    "quality": ("quality:quality_command", "Check the tables against the suites in expectations/; exit code 1 where checks fail."),
    "backup": ("backup:backup_command", "Save tables and checkpoint as of one batch into DIR, a new path or URI, while the pipeline runs."),
    "restore": ("backup:restore_command", "Put the backup in DIR back into CONFIG's warehouse, which must be empty; `run` then goes on."),
    "publish": ("publish:publish_command", "Publish sessions to the compacted Kafka topic of [sink.kafka]."),
    "jars": ("jars:jars_command", "Fetch the jars that Spark needs, where they are not there yet, and print their folder."),
    "fast-start": ("fast_start:fast_start_command", "Archive the classes that Spark uses, once for this installation, so that commands start with a third less work."),
    "demo": ("demo:demo_command", "Turn 62,726 real commit events into sessions, run all jobs on them, and show what came out."),
}  # fmt: skip
"""Of each command the place, as module:attribute under sessionlake.cli, and its line in the help, in the help's order."""


class LazyGroup(click.Group):
    """A group of the commands above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, its module imported now; None where there is none of the name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"sessionlake.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' lines, none of them imported."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])
