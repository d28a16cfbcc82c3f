"""A brake in steps."""

from collections.abc import Callable
from typing import Any

from sessionlake.testing import SessionizerHarness


def stepped(harness: SessionizerHarness, some: list[dict[str, Any]], clock_us: int) -> None:
    ttl = harness._operator.spec.ttl  # type: ignore[union-attr]
    before = dict(harness.state)
    seen: list[dict[str, int]] = []
    run: Callable[..., Any] = harness._shards.run

    def noted(*args: Any) -> Any:
        results, stats = run(*args)
        seen.append(stats)
        return results, stats

    harness._shards.run = noted  # type: ignore[method-assign]
    harness.process(some, clock_us=clock_us)
    harness._shards.run = run  # type: ignore[method-assign]
    assert ttl is not None
    ttl.checked(before, seen[0])
