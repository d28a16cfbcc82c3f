"""A pipeline as the coordinator sees it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sessionlake.config.store_engines import StoreEngine
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.warehouse.batch_commit import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PinsOf = Callable[[Mapping[str, str] | None, Mapping[str, str]], Mapping[str, str]]
"""Returns the versions of further inputs that a batch reads: of the batch's interrupted attempt, or, for None, the newest.
The second argument is the previous batch's versions."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's properties for the coordinator."""

    name: str
    checkpoint_id: str
    operator: Operator[Any]
    shards: int
    store_dir: str
    store_engine: StoreEngine
    outputs: tuple[Output, ...]
    """In the order in which they are committed; the last one's commit, the changelog's, is the batch's."""
    settings: Settings
    """The settings that later runs compare theirs with. Every commit has them."""
    under: Callable[[Settings], "Pipeline"]
    """The same pipeline under the settings with which an interrupted attempt of a batch has already appended side rows."""
    stored_state: "Callable[[Operator[Any], dict[str, Any]], DataFrame]"
    """Rows (key, ...) from the tables, that restore shards after the last commit, given the state; may be versions (`columnar.newest`)."""
    asked_for: "Callable[[Operator[Any], dict[str, Any], DataFrame], DataFrame]"
    """Rows (key, ...) that answer shards' needs."""
    input_of: Callable[[int], str | None]
    """A fingerprint of a batch's input in the stream's offset log."""
    store_layout: Callable[[Operator[Any]], str]
    """The settings behind a store's content, besides its keys. If the layout changes, every store is restored."""
    pins: PinsOf = lambda before, _: before or {}
    """The versions of a batch's further inputs."""
    checked: Callable[[Operator[Any], dict[str, Any], dict[str, int]], Sequence[str]] = lambda *_: ()
    """Check a batch's numbers before any part of it is committed. It takes the operator, the state
    before the batch, and the numbers. It returns messages for the log, or raises an error, which refuses the batch."""
    keeps_replaced: bool = False
    """Whether the rows that batches replace or delete are kept."""
