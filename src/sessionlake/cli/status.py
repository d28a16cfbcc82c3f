"""The command that shows how a pipeline does, once or for as long as one looks."""

import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sessionlake.cli.progress import progress
from sessionlake.cli.shared import console, format_time, one_line_errors, positive_duration
from sessionlake.config.durations import format_duration, parse_duration
from sessionlake.config.load import Config, load_config
from sessionlake.errors import first_line

if TYPE_CHECKING:
    from sessionlake.observe.status import Status
    from sessionlake.observe.watch import Watch


@click.command("status")
@click.argument("config_path", metavar="CONFIG")
@click.option("--watch", is_flag=True, help="Show it again and again, until ctrl-C.")
@click.option("--interval", default="5 seconds", show_default=True, help="With --watch: how often.")
@one_line_errors
def status_command(config_path: str, watch: bool, interval: str) -> None:  # noqa: FBT001 (click passes flags by name)
    """Show watermark, lag, counts that reconcile, store size and the last batches."""
    config = load_config(config_path)
    seconds = positive_duration(interval, "--interval")
    if watch:
        watch_status(config, seconds)
        return
    from sessionlake.observe.status import read_status

    with progress() as shown:
        shown.step("reading the tables")
        status = read_status(config)
    print_status(config, status)


def watch_status(config: Config, seconds: float) -> None:
    """Show the status until interrupted: on a terminal in one place, elsewhere one after the other."""
    from sessionlake.observe import watch
    from sessionlake.observe.status import read_status

    status = watch.Watch(config, read_status)
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        while True:
            due = time.monotonic() + seconds
            shown = _look(config, status)
            if live:
                live.update(shown, refresh=True)
            else:
                console.print(shown, soft_wrap=True)  # a line of a log stays one
                sys.stdout.flush()
            watch.pause_until(due)


def _look(config: Config, status: "Watch[Status]") -> RenderableType:
    from sessionlake.observe.watch import PASSING

    now_us = time.time_ns() // 1000
    moment = Text(f"{format_time(now_us)} UTC", style="dim")
    try:
        return Group(moment, render_status(config, status.look(), now_us))
    except PASSING as error:
        return Group(moment, Text(first_line(error), style="red"))


def print_status(config: Config, status: "Status") -> None:
    """Print a pipeline's status."""
    console.print(render_status(config, status, time.time_ns() // 1000))


def render_status(config: Config, status: "Status", now_us: int) -> RenderableType:
    """Return a pipeline's status as it is printed, with lag and age as of `now_us`."""
    c, late = status.counts, status.late
    lag = "-" if status.watermark_us is None else format_duration(now_us - status.watermark_us)
    lines = (
        f"[bold]{config.pipeline.name}[/bold]  batch {status.batch_id}, changelog version {status.changelog_version}",
        f"watermark    {format_time(status.watermark_us)}  (lag {lag}; last commit {format_duration(now_us - status.committed_us)} ago)",
        f"events       {c['input']:,} = {c['accepted']:,} accepted + {c['late']:,} late + {c['dead']:,} dead + {c['dropped']:,} dropped + {c['emitted']:,} emitted",
        f"late events  {late.events:,} = {late.reprocessed:,} reprocessed + {late.expired:,} expired + {late.waiting:,} waiting",
        f"corrections  {c['corrections']:,}: {c['applied']:,} applied, {c['stale']:,} stale, {c['expired']:,} expired",
        *([] if status.rows is None else [f"rows         {status.rows:,}"]),
        *_expiry(config, status),
        *(
            []
            if status.evicted is None
            else [f"evicted      {status.evicted:,} before ttl.changelog_retention was over"]
        ),
        f"reconciles   {'yes' if status.reconciles else '[red]NO[/red]'}",
        f"store        {status.store_bytes / 1e6:,.1f} MB in {escape(status.store_dir)}",
        f"checkpoint   {escape(status.checkpoint)}",
    )
    return Group(*(Text.from_markup(line) for line in lines), _batches(status))


def _expiry(config: Config, status: "Status") -> list[str]:
    """Return a line of what the last cleanup of [ttl] says; none where it says nothing."""
    told = [] if status.expiry_lag_us is None else [f"lag {format_duration(status.expiry_lag_us)}"]
    if status.cleanup_round_us is not None:
        told.append(f"a round takes {format_duration(status.cleanup_round_us)}")
        ttl = config.live_settings()["ttl"].get("ttl")
        if ttl is not None and status.cleanup_round_us > parse_duration(ttl) / 2:
            told.append("[red]more than half of ttl.ttl: raise ttl.max_duration or shorten ttl.every[/red]")
    return [f"expiry       {', '.join(told)}"] if told else []


def _batches(status: "Status") -> Table:
    table = Table("batch", "events", "accepted", "late", "dead", "upserts", "deletes", "seconds", "watermark")
    for row in status.last_batches:
        seconds = (row["committed_at"] - row["started_at"]).total_seconds()
        numbers = (f"{row[name]:,}" for name in ("input", "accepted", "late", "dead", "upserts", "deletes"))
        table.add_row(
            str(row["batch_id"]),
            *numbers,
            f"{seconds:.1f}",
            str(row["watermark"].replace(tzinfo=None) if row["watermark"] else "-"),
        )
    return table
