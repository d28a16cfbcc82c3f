"""Many files copied at once, with progress."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sessionlake.engine import failpoints

_AT_ONCE = 8

OnFile = Callable[[int, int], None]
"""Takes the number of files done and of all."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(action: Callable[[Item], Result], items: Sequence[Item], point: str, on_file: OnFile) -> list[Result]:
    """Return an action's results for items, in their order; the first failure, or an interrupt, ends it."""
    found: list[Result] = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [pool.submit(action, item) for item in items]
        try:
            for future in futures:
                found.append(future.result())
                failpoints.hit(point)
                on_file(len(found), len(items))
        finally:
            for future in futures:
                future.cancel()
    return found
