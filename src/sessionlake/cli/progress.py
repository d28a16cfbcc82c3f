"""A command's progress for people, on standard error: a live line on a terminal, otherwise plain lines now and then.

Standard output is left to scripts. A command that ends within `PATIENCE_S` shows nothing.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from sessionlake.cli.shared import console

PATIENCE_S = 2.0
EVERY_S = 30.0
"""How often a step that takes long gets another plain line."""
CHECKING = "verifying source and tables"
"""The step before Spark is started."""
_LOOK_S = 0.5
_BAR = 24

Count = tuple[int, int, str]
"""The number done, the number in all, and their unit."""


class Progress:
    """A command's present step. `tasks` reports progress within a step, if the step itself does not."""

    def __init__(
        self, name: str, tasks: Callable[[], Count | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self._tasks, self._clock = name, tasks, clock
        self._began = clock()
        self._step_began, self._what, self._count = self._began, "", (0, 0, "")
        self._said, self._said_at = "", self._began

    def step(self, what: str) -> None:
        """Begin the next step."""
        self._what, self._count, self._step_began = what, (0, 0, ""), self._clock()

    def count(self, done: int, of: int, what: str = "files") -> None:
        """Take how many are done of how many."""
        self._count = (done, of, what)

    def look(self) -> None:
        """See how far the work within the step is, if nobody counts it."""
        if not self._count[2] or self._count[2] == "tasks":
            self._count = self._tasks() or (0, 0, "")

    def due_line(self) -> str | None:
        """Return the line that is due if there is no terminal: of each step, and again after `EVERY_S`."""
        now = self._clock()
        if not self._what or now - self._began < PATIENCE_S:
            return None
        if self._what == self._said and now - self._said_at < EVERY_S:
            return None
        self._said, self._said_at = self._what, now
        long = f" ({elapsed(now - self._step_began)})" if now - self._step_began >= EVERY_S else ""
        return ", ".join([f"{self.name}: {self._what}", *self._counted()]) + long

    def __rich__(self) -> Table:
        """Return the live line."""
        line = Table.grid(padding=(0, 1))
        cells: list[RenderableType] = [
            _SPINNER,
            Text(self.name, style="bold", no_wrap=True),
            Text(self._what, no_wrap=True, overflow="ellipsis"),
        ]
        done, of, _ = self._count
        if of:
            cells += [ProgressBar(total=of, completed=done, width=_BAR), Text(", ".join(self._counted()), no_wrap=True)]
        line.add_row(*cells, Text(elapsed(self._clock() - self._began), style="dim", no_wrap=True))
        return line

    def _counted(self) -> list[str]:
        done, of, what = self._count
        return [f"{done:,} of {of:,} {what}"] if of else []


_SPINNER = Spinner("dots")
_shown: Progress | None = None
_live: Live | None = None


@contextmanager
def progress() -> Iterator[Progress]:
    """Show progress of click's command while the block runs; inside of a shown one, that one goes on.

    With --quiet, and outside of a command, nothing is shown.
    """
    global _shown  # noqa: PLW0603 (a process has one terminal)
    if _shown is not None:
        yield _shown
        return
    context = click.get_current_context(silent=True)
    shown = Progress((context and context.info_name) or "", _running_tasks)
    with ExitStack() as stack:
        if context is not None and not context.find_root().params.get("quiet"):
            stack.enter_context(_displayed(shown))
        _shown = shown
        try:
            yield shown
        finally:
            _shown = None


@contextmanager
def paused() -> Iterator[None]:
    """Remove the live line while the block runs, because the block shows its own progress."""
    if _live is None:
        yield
        return
    _live.stop()
    try:
        yield
    finally:
        _live.start()


@contextmanager
def _displayed(shown: Progress) -> Iterator[None]:
    global _live  # noqa: PLW0603 (as above)
    terminal = _terminal()
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(shown, ended, terminal is None), name="progress", daemon=True)
    live = (
        None
        if terminal is None
        else Live(shown, console=terminal, transient=True, refresh_per_second=5, redirect_stderr=sys.stderr.isatty())
    )
    with ExitStack() as stack:
        if live is not None:
            stack.enter_context(live)
        _live = live
        thread.start()
        try:
            yield
        finally:
            _live = None
            ended.set()


def _terminal() -> Console | None:
    """Return the console of the live line: that of standard output if it is a terminal too. Otherwise the two would mix."""
    if not sys.stderr.isatty():
        return None
    return console if console.is_terminal else Console(stderr=True)


def _follow(shown: Progress, ended: threading.Event, plain: bool) -> None:  # noqa: FBT001
    while not ended.wait(_LOOK_S):
        shown.look()
        line = shown.due_line() if plain else None
        if line is not None:
            with suppress(OSError, ValueError):  # nobody reads it any more
                click.echo(line, err=True)


def _running_tasks() -> Count | None:
    """Return how many of the tasks of Spark's running stages are done; None if none runs."""
    # None, too, while the main thread imports the module.
    tasks = getattr(sys.modules.get("sessionlake.engine.spark"), "running_tasks", None)
    found: tuple[int, int] | None = tasks() if tasks is not None else None
    return None if found is None else (*found, "tasks")


def elapsed(seconds: float) -> str:
    """Return seconds as minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
