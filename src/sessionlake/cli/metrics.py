"""The command that exports metrics to Prometheus, read from the tables."""

import time
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

import click

from sessionlake.cli.each import tell_failure, worst_of_all
from sessionlake.cli.operands import EITHER, config_argument
from sessionlake.cli.progress import progress
from sessionlake.cli.shared import console, one_line_errors, positive_duration, show_warnings
from sessionlake.config.load import load_config
from sessionlake.config.project import Member, is_project, load_project
from sessionlake.errors import MetricsError, SessionlakeError, first_line

if TYPE_CHECKING:
    from sessionlake.observe.exporter import Exporter

PORT = 9465


@click.command("metrics")
@config_argument(EITHER)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 takes a free one.")
@click.option("--host", help="Address to listen on.  [default: the config's metrics.host, 127.0.0.1]")
@click.option("--interval", default="1 minute", show_default=True, help="The time between two looks at the tables.")
@click.option("--once", is_flag=True, help="Print the metrics and exit.")
@one_line_errors
def metrics_command(config_path: str, port: int, host: str | None, interval: str, once: bool) -> None:  # noqa: FBT001 (click passes flags by name)
    """Serve Prometheus metrics read from the tables, also while no stream runs, until ctrl-C.

    Of a project, a directory with a project.toml, those of all pipelines: the label `pipeline` tells them apart.
    """
    members = list(load_project(config_path).members.values()) if is_project(config_path) else []
    configs = [member.config for member in members] or [load_config(config_path)]
    seconds = positive_duration(interval, "--interval")
    from sessionlake.observe.exporter import Exporter
    from sessionlake.observe.readings import Merged, served

    exporters = [Exporter(config) for config in configs]
    if once:
        _print_once(exporters, members)
        return
    address = host or configs[0].metrics.host
    with served(Merged(*exporters), address, port) as bound:
        console.print(f"metrics at http://{address}:{bound}/metrics, the tables read every {interval}")
        _refresh_forever(exporters, [f"{member.name}: " for member in members] or [""], seconds)


def _print_once(exporters: "Sequence[Exporter]", members: Sequence[Member]) -> None:
    """Print the metrics; of a project, also if some pipelines have none, and exit with the worst code."""
    from prometheus_client import generate_latest

    from sessionlake.observe.readings import Merged, registry_of

    failures = []
    with progress() as shown:
        shown.step("reading the tables")
        for number, exporter in enumerate(exporters, 1):
            failures.append(_as_ours(exporter.refresh()))
            shown.count(number, len(exporters), "pipelines")
    if not members and failures[0] is not None:
        raise failures[0]
    codes = {
        0 if failure is None else tell_failure(member.name, failure, member.path)
        for member, failure in zip(members, failures, strict=False)
    }
    click.echo(generate_latest(registry_of(Merged(*exporters))).decode(), nl=False)
    if code := worst_of_all(codes):
        raise SystemExit(code)


def _as_ours(failure: BaseException | None) -> SessionlakeError | None:
    if failure is None or isinstance(failure, SessionlakeError):
        return failure
    found = MetricsError(first_line(failure))
    found.__cause__ = failure
    return found


def _refresh_forever(exporters: "Sequence[Exporter]", names: Sequence[str], seconds: float) -> None:
    """Refresh each in a thread of its own: a store that does not answer keeps no other pipeline from being read."""
    defects = SimpleQueue[BaseException]()
    for exporter, name in zip(exporters, names, strict=True):
        Thread(target=_refresh_one, args=(exporter, name, seconds, defects), name="exporter", daemon=True).start()
    raise defects.get()


def _refresh_one(exporter: "Exporter", name: str, seconds: float, defects: SimpleQueue[BaseException]) -> None:
    from sessionlake.observe.watch import pause_until

    said = None
    try:
        while True:
            due = time.monotonic() + seconds
            failure = exporter.refresh()
            text = None if failure is None else first_line(failure)
            if text != said and text is not None:
                show_warnings([f"{name}{text}"])
            said = text
            pause_until(due)
    except BaseException as error:  # noqa: BLE001 (the main thread raises it)
        defects.put(error)
