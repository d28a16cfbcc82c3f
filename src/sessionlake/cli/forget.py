"""The command `forget`."""

import sys
from pathlib import Path

import click

from sessionlake.cli.observed import observed
from sessionlake.cli.shared import console, job_options, one_line_errors, open_session, print_report
from sessionlake.config import load_config
from sessionlake.errors import JobError


@click.command("forget")
@click.argument("config_path", metavar="CONFIG")
@click.argument("keys", metavar="KEY...", nargs=-1)
@click.option("--keys-file", help="A file with more keys, one a line.")
@click.option(
    "--proof", is_flag=True, help="Only look where the keys are; remove nothing. Exit code 1 where one is found."
)
@click.option("--wait", default="10 minutes", show_default=True, help="How long to wait for a stream that runs.")
@job_options
@one_line_errors
def forget_command(
    config_path: str,
    keys: tuple[str, ...],
    keys_file: str | None,
    proof: bool,  # noqa: FBT001 (click passes flags by name)
    wait: str,
    run_id: str | None,
    dry_run: bool,  # noqa: FBT001
    apply: bool,  # noqa: FBT001
) -> None:
    """Remove all that is kept of some keys, and prove it: sessions, late events, dead letters, files, logs, stores."""
    from sessionlake.jobs.forget import check, forget

    config = load_config(config_path)
    chosen = [*keys, *_read_keys(keys_file)]
    with observed(config, "forget", dry_run=dry_run or proof) as counted:
        spark = open_session(config)
        with console.status("forget") as status:
            if proof:
                result = check(spark, config, chosen, status.update)
            else:
                report = forget(
                    spark, config, chosen, wait=wait, apply=apply, run_id=run_id, dry_run=dry_run, on_step=status.update
                )
        if proof:
            for line in result.lines():
                console.print(line)
            sys.exit(1 if result.found else 0)
        print_report(report)
        counted(report.counts)
        sys.exit(1 if report.counts["found"] and not dry_run else 0)


def _read_keys(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        return Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"--keys-file: {path!r} can't be read ({error}); pass a text file with a key a line") from error
