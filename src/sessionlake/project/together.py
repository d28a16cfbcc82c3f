"""Pipelines that run beside each other in one process: in the order of their graph, each failing alone. Knows no Spark."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum
from graphlib import TopologicalSorter
from typing import Generic, TypeVar

from sessionlake.config.graph import Graph
from sessionlake.errors import AwaitedError, SessionlakeError, without_values

Result = TypeVar("Result")
LONGEST_WAIT_S = 300.0
"""The longest time until a pipeline that failed is started again."""
_LOOK_S = 0.5


class How(Enum):
    """How a pipeline ended."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    """An input pipeline has failed, or has no batches yet."""
    STOPPED = "stopped"


@dataclass(frozen=True)
class Ended(Generic[Result]):
    """A pipeline's end."""

    how: How
    result: Result | None = None
    error: Exception | None = None
    because: tuple[str, ...] = ()
    """The failed pipelines that a skipped pipeline reads."""


@dataclass
class Together(Generic[Result]):
    """Runs the work of each pipeline in a thread of its own.

    `work` gets a pipeline's name, and runs it to its end. It raises KeyboardInterrupt if it ends because `asked` is set.
    """

    graph: Graph
    work: Callable[[str], Result]
    asked: threading.Event
    """Set if all are to end."""
    failed: Callable[[str, Exception, float | None], None] = lambda *_: None
    """Called with a pipeline's name, its error, and the seconds until it is started again; None if it is not."""
    waits: Callable[[str, AwaitedError], None] = lambda *_: None
    """Called with a pipeline's name, and the reason to wait: an input pipeline has no batches yet."""
    ended: dict[str, Ended[Result]] = field(default_factory=dict)

    def once(self, most: int) -> Mapping[str, Ended[Result]]:
        """Run each pipeline once, after its inputs, at most `most` at a time.

        A pipeline is skipped if one of its inputs has failed or was skipped: it would compute on incomplete tables.
        """
        sorter = TopologicalSorter({name: self.graph.upstream(name) for name in self.graph.names})
        sorter.prepare()
        running: dict[Future[None], str] = {}
        with ThreadPoolExecutor(most, thread_name_prefix="pipeline") as pool:
            while sorter.is_active() and not (self.asked.is_set() and not running):
                for name in [] if self.asked.is_set() else sorter.get_ready():
                    broken = tuple(up for up in self.graph.upstream(name) if self.ended[up].how is not How.DONE)
                    if broken:
                        self.ended[name] = Ended(How.SKIPPED, because=broken)
                        sorter.done(name)
                    else:
                        running[pool.submit(self._once, name)] = name
                for future in wait(running, _LOOK_S, FIRST_COMPLETED).done:
                    name = running.pop(future)
                    future.result()
                    sorter.done(name)
        return self.ended

    def until_stopped(self, *, restart: bool = True) -> Mapping[str, Ended[Result]]:
        """Run all until `asked` is set; a failed pipeline is started again, or not, and the others go on."""
        threads = [
            threading.Thread(target=self._again_and_again, args=(name, restart), name=f"pipeline-{name}", daemon=True)
            for name in self.graph.names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK_S)  # in slices: the main thread hears signals in between
        return self.ended

    def _worked(self, name: str) -> Result:
        """Do the work of a pipeline. A panic of a library in Rust and `sys.exit()`, which are no Exceptions, are failures, too."""
        try:
            return self.work(name)
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise SessionlakeError(f"pipeline {name!r} ended by {without_values(error)}") from error

    def _once(self, name: str) -> None:
        try:
            self.ended[name] = Ended(How.DONE, self._worked(name))
        except KeyboardInterrupt:
            self.ended[name] = Ended(How.STOPPED)
        except AwaitedError:
            self.ended[name] = Ended(How.SKIPPED, because=tuple(self.graph.upstream(name)))
        except Exception as error:  # noqa: BLE001 (whatever it is, the other pipelines go on)
            self.ended[name] = Ended(How.FAILED, error=error)
            self.failed(name, error, None)

    def _again_and_again(self, name: str, restart: bool) -> None:  # noqa: FBT001
        pause_s, reported = 1.0, False
        while not self.asked.is_set():
            began = time.monotonic()
            self.ended.pop(name, None)
            try:
                self.ended[name] = Ended(How.DONE, self._worked(name))
            except KeyboardInterrupt:
                break
            except AwaitedError as error:
                if not reported:
                    self.waits(name, error)
                reported = True
                self.asked.wait(_LOOK_S)
                continue
            except Exception as error:  # noqa: BLE001 (as above)
                self.ended[name] = Ended(How.FAILED, error=error)
                if time.monotonic() - began > LONGEST_WAIT_S:
                    pause_s = 1.0
                self.failed(name, error, pause_s if restart else None)
            else:
                return
            if not restart:
                return
            self.asked.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_WAIT_S)
        self.ended[name] = Ended(How.STOPPED)
