"""The command that exports metrics to Prometheus, read from the tables."""

import time
from typing import TYPE_CHECKING

import click

from sessionlake.cli.operands import CONFIG, config_argument
from sessionlake.cli.progress import progress
from sessionlake.cli.shared import console, one_line_errors, positive_duration, show_warnings
from sessionlake.config.load import load_config
from sessionlake.errors import MetricsError, SessionlakeError, first_line

if TYPE_CHECKING:
    from sessionlake.observe.exporter import Exporter

PORT = 9465


@click.command("metrics")
@config_argument(CONFIG)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 takes a free one.")
@click.option("--host", help="Address to listen on.  [default: the config's metrics.host, 127.0.0.1]")
@click.option("--interval", default="1 minute", show_default=True, help="The time between two looks at the tables.")
@click.option("--once", is_flag=True, help="Print the metrics and exit.")
@one_line_errors
def metrics_command(config_path: str, port: int, host: str | None, interval: str, once: bool) -> None:  # noqa: FBT001 (click passes flags by name)
    """Serve Prometheus metrics read from the tables, also while no stream runs, until ctrl-C."""
    config = load_config(config_path)
    seconds = positive_duration(interval, "--interval")
    from prometheus_client import generate_latest

    from sessionlake.observe.exporter import Exporter
    from sessionlake.observe.readings import registry_of, served

    exporter = Exporter(config)
    if once:
        with progress() as shown:
            shown.step("reading the tables")
            failure = exporter.refresh()
        if isinstance(failure, SessionlakeError):
            raise failure
        if failure is not None:
            raise MetricsError(first_line(failure)) from failure
        click.echo(generate_latest(registry_of(exporter)).decode(), nl=False)
        return
    with served(exporter, host or config.metrics.host, port) as bound:
        console.print(
            f"metrics at http://{host or config.metrics.host}:{bound}/metrics, the tables read every {interval}"
        )
        _refresh_forever(exporter, seconds)


def _refresh_forever(exporter: "Exporter", seconds: float) -> None:
    from sessionlake.observe.watch import pause_until

    said = None
    while True:
        due = time.monotonic() + seconds
        failure = exporter.refresh()
        text = None if failure is None else first_line(failure)
        if text != said and text is not None:
            show_warnings([text])
        said = text
        pause_until(due)
